"""The stories of the demos, one a file."""

from smile.demo.stories.flights import FLIGHTS
from smile.demo.stories.scoreboard import SCOREBOARD
from smile.demo.stories.sensors import SENSORS
from smile.demo.stories.stocks import STOCKS
from smile.demo.stories.tradefloor import TRADEFLOOR
from smile.demo.story import Story

STORIES: dict[str, Story] = {story.name: story for story in (TRADEFLOOR, STOCKS, SCOREBOARD, FLIGHTS, SENSORS)}

"""Private parts of libraries: they are used in one module each, and the installed versions still have them."""

import ast
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyspark.daemon
import pyspark.find_spark_home
import pyspark.java_gateway
import pytest
import uvicorn
from pyspark import SparkContext
from pyspark.accumulators import AccumulatorTCPServer, AccumulatorUnixServer
from pyspark.sql import SparkSession
from pyspark.sql.classic.column import Column
from pyspark.sql.classic.dataframe import DataFrame
from pyspark.sql.pandas import functions as pandas_functions
from uvicorn.protocols.http import httptools_impl
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from uvicorn.server import ServerState
from websockets import protocol
from websockets.server import ServerProtocol

from tests.docs import ROOT

SRC = ROOT / "src" / "smile"
PYSPARK = SRC / "engine" / "spark" / "pyspark_internals.py"
UVICORN = SRC / "gateway" / "uvicorn_internals.py"

USED: list[tuple[Any, str]] = [
    (pyspark.find_spark_home, "_find_spark_home"),
    (pyspark.java_gateway, "launch_gateway"),
    (pyspark.daemon, "manager"),
    (pandas_functions, "vectorized_udf"),
    (pandas_functions.PythonEvalType, "SQL_MAP_ARROW_ITER_UDF"),
    *((SparkContext, name) for name in "_ensure_initialized _active_spark_context _gateway _jvm _jsc".split()),
    (SparkContext, "_accumulatorServer"),
    (AccumulatorTCPServer, "handle_error"),
    (AccumulatorUnixServer, "handle_error"),
    *((SparkSession, name) for name in ("_instantiatedSession", "_activeSession")),
    (DataFrame, "_jdf"),
    (Column, "_jc"),
    *((uvicorn.Server, name) for name in "startup on_tick shutdown capture_signals".split()),
    *((uvicorn.Server, name) for name in "servers server_state should_exit".split()),
    (ServerState, "connections"),
    *(
        (httptools_impl.HttpToolsProtocol, name)
        for name in """connection_made data_received eof_received on_response_complete on_message_begin
        on_headers_complete on_message_complete send_400_response cycle connections transport loop scheme scope""".split()
    ),
    *(
        (httptools_impl.RequestResponseCycle, name)
        for name in "response_started response_complete more_body disconnected message_event".split()
    ),
    *(
        (WebSocketsSansIOProtocol, name)
        for name in """connection_lost resume_writing handle_connect send_receive_event_to_app writable disconnected
        close_sent close_timer close_timeout conn queue frames curr_msg_data_type read_paused transport loop
        scope send handshake_complete""".split()
    ),
    *((ServerProtocol, name) for name in "state send_close data_to_send".split()),
    (protocol.State, "OPEN"),
]


def has_attribute(owner: Any, name: str) -> bool:
    """Whether it has the attribute, or a method of the class uses one of `self`: many are set by __init__ only."""
    if hasattr(owner, name):
        return True
    functions = [f for base in inspect.getmro(owner) for f in vars(base).values() if inspect.isfunction(f)]
    return any(name in function.__code__.co_names for function in functions)


@pytest.mark.parametrize(("owner", "name"), USED, ids=lambda value: getattr(value, "__name__", value))
def test_the_library_has_it(owner: Any, name: str) -> None:
    library = inspect.getmodule(owner)
    assert library is not None
    module = PYSPARK if library.__name__.startswith("pyspark") else UVICORN
    assert has_attribute(owner, name), f"{library.__name__}: {owner.__name__} has no {name}; {module.name} needs it"


def test_a_missing_attribute_is_noticed() -> None:
    assert not has_attribute(SparkContext, "_never")
    assert not has_attribute(uvicorn.Server, "never")


PRIVATE_MODULES = {
    "pyspark.find_spark_home": [PYSPARK],
    "pyspark.java_gateway": [PYSPARK],
    "pyspark.sql.pandas": [PYSPARK],
    "pyspark.daemon": [SRC / "engine" / "spark" / "daemon.py"],  # it runs in a process of its own
    "uvicorn.protocols": [UVICORN],
    "websockets.protocol": [UVICORN],
}


def own_private_names(trees: dict[Path, ast.Module]) -> set[str]:
    """Names with an underscore that SMILE defines."""
    names: set[str] = set()
    for node in (node for tree in trees.values() for node in ast.walk(tree)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in ("self", "cls"):
            names.add(node.attr)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names.add(node.target.id)
    return names


def foreign_private_uses(path: Path, tree: ast.Module, own: set[str]) -> Iterator[str]:
    """Uses of private modules of libraries, and of attributes with an underscore that SMILE does not define."""
    for node in ast.walk(tree):
        modules: list[str] = []
        if isinstance(node, ast.ImportFrom) and node.module:
            modules = [node.module]
        elif isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        for module in modules:
            for private, places in PRIVATE_MODULES.items():
                if f"{module}.".startswith(f"{private}.") and path not in places:
                    yield f"{path.relative_to(SRC)}: {module}"
        if isinstance(node, ast.Attribute) and node.attr.startswith("_") and not node.attr.startswith("__"):
            holder = node.value.id if isinstance(node.value, ast.Name) else ""
            if (holder, node.attr) == ("os", "_exit"):  # documented and public in spite of its name
                continue
            if (node.attr not in own or holder in ("SparkContext", "SparkSession")) and path not in (PYSPARK, UVICORN):
                yield f"{path.relative_to(SRC)}: {node.attr}"


def test_private_parts_are_used_in_one_module_each() -> None:
    trees = {path: ast.parse(path.read_text()) for path in SRC.rglob("*.py")}
    own = own_private_names(trees)
    assert [use for path, tree in trees.items() for use in foreign_private_uses(path, tree, own)] == []
    planted = ast.parse("from uvicorn.protocols import http\nSparkContext._gateway\nframe._jdf")
    assert len(list(foreign_private_uses(SRC / "planted.py", planted, own))) == 3

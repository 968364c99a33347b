"""Limits on what the system accepts, stores and waits for: name, default and reason of each.

Constants that only tune the algorithm of one module, such as the number of runs before a merge, are in that module.
"""

from typing import Final

program_bytes_max: Final = 4 * 2**20
"""People or tools write programs; 4 MiB is about ten thousand views."""

table_file_bytes_max: Final = 2**20
"""The rows of a table that are written in a file become part of the program, which has its own limit."""

nesting_max: Final = 200
"""Nested parentheses. Deeper text is a mistake or an attack, and recursion must end."""

errors_shown_max: Final = 20
"""A person reads the first few errors; the rest are only counted."""

excerpt_chars_max: Final = 100
"""Only this much of a long line is shown, around the caret."""

decimal_digits_max: Final = 38
"""The digits that decimal128 holds."""

relation_rows_max: Final = 2**53
"""Rows of a relation. No relation counts its rows: the ticks of an origin are 1,024 apart, so it has fewer events, and
a machine that joins a billion rows a second needs more than a hundred days for so many. Sums and counts of so many rows
do not overflow, and every count is exact in JSON."""

java_start_s_max: Final = 20
"""A Java that does not print its version within this time is taken as broken, and the next one is tried."""

number_chars_max: Final = 1000
"""The time to parse a number grows with the square of its length, and no type holds a longer one."""

json_depth_max: Final = 100
"""Levels of arrays and objects in a value of type json. An event or a recorded line adds two, within `nesting_max`."""

json_chars_max: Final = 2**20
"""The characters of a value of type json, which is parsed in every row that reads a part of it. One that is longer than
a line of recorded events could not be recorded."""

statement_tokens_max: Final = 100_000
"""Tokens of one statement. Ten thousand columns need fewer."""

syntax_depth_max: Final = 1_000
"""Levels of a syntax tree: `a + a + …` has one for each operator."""

expression_depth_max: Final = 200
"""Levels of the relational algebra of a view. Code that walks it recurses, with up to four calls for a level, and
Python allows a thousand."""

expression_chain_max: Final = 80
"""Operators of a chain such as `a + b + …`. A longer one is computed in parts, so that its tree is not too deep."""

view_operators_max: Final = 10_000
"""Relational operators of a view, after its common table expressions are expanded: they are compiled in a second."""

padded_characters_max: Final = 2**20
"""The characters that LPAD or RPAD adds: a length from an event must not exhaust memory."""

grouping_sets_max: Final = 64
"""Sets of one GROUP BY. Each is a query of its own; CUBE of seven columns has 128."""

syntax_errors_max: Final = 100
"""Parsing stops after this many errors: the text is probably not a program."""

combinations_max: Final = 3**6
"""Up to this many combinations of operand values are evaluated one by one. Only a function of seven Booleans has
more."""

dead_letters_listed_max: Final = 1_000
"""Dead letters in one answer: each has the text of an event or a row."""

listed_values_max: Final = 1_000
"""The values that a column can have are listed up to this number, for instance those of an IN in a CHECK. Of more
values, only the least and the greatest are known."""

event_line_bytes_max: Final = 2**20
"""A line of recorded events. A longer line is not an event, and reading it must not exhaust memory."""

events_block_bytes_max: Final = 2**18
"""Recorded events are read in blocks of this size: large enough to be fast, small enough for the CPU cache."""

input_batch_bytes_max: Final = 2**28
"""A batch of recorded events ends after this many bytes, whatever its number of lines: an Arrow text array holds at
most 2 GiB."""

inbox_waiting_bytes_max: Final = 2**26
"""Events that wait behind a gap. Further ones are dropped, and requested again once the gap is closed."""

state_versions_kept: Final = 3
"""Soft checkpoints that are kept. If the newest is damaged, the one before it costs a little more replay."""

array_elements_max: Final = 10_000
"""Elements of an array in an event or from STRING_TO_ARRAY: UNNEST makes a row of each."""

windows_max: Final = 10_000
"""Windows that one row may be in: a HOP makes one row for each."""

window_frame_rows_max: Final = 10_000
"""Rows before or after a row that ROWS reaches: so many of each partition are kept."""

windows_warned: Final = 100
"""A HOP with more windows for each row gets a warning: every event changes that many rows."""

transform_rows_max: Final = 20_000_000
"""Rows that a transform makes of one batch: windows of a HOP, pairs of a join. More would take gigabytes at once; the
batch is repeated with fewer events instead."""

partitions_max: Final = 1_000
"""Partitions of a stage: in each batch, every partition sends a message to every partition of the next stage."""

batch_rows_max: Final = 20_000
"""Events of one batch in the broker's own process. Views that are up to date wait for the batch of those that are
not."""

batch_bytes_max: Final = 2**26
"""Bytes of the events of such a batch."""

batch_shrink_factor: Final = 8
"""A batch that needs too much memory is repeated with this many times fewer events: few attempts until it fits."""

batches_before_growth: Final = 32
"""After so many batches on Spark with fewer events, more are tried again. It costs a restart of the pipeline."""

spark_batch_rows_max: Final = 200_000
"""Events of one batch on Spark, where even a small batch costs more than in the broker's process."""

spark_batch_bytes_max: Final = 2**27
"""Bytes of the events of such a batch."""

stand_in_backlog_max: Final = 200_000
"""Events behind which no stand-in begins: it would compute for seconds what Spark computes again."""

stand_in_events_max: Final = 2_000_000
"""Events after which a stand-in ends, even if Spark has not caught up: it has the same work twice otherwise."""

stand_in_state_bytes_max: Final = 2**28
"""State of a stand-in, in the broker's memory. With more, the views wait for Spark."""

stand_in_poll_s: Final = 0.02
"""A stand-in looks for new commits this often. It runs for seconds only."""

checkpoint_s_max: Final = 10.0
"""Time between two soft checkpoints in the broker's process: this much is replayed after a crash."""

checkpoint_events_max: Final = 500_000
"""Events between two soft checkpoints: they are replayed within seconds."""

maintainer_poll_s: Final = 0.25
"""A maintainer looks for new commits this often, even without a notification."""

maintainer_stop_s_max: Final = 6.0
"""When a maintainer stops, it waits at most this long for a batch to end, and half as long again for processes that it
then ends. A batch that is cut off is repeated after the next start."""

exit_s_max: Final = 25
"""Time from the signal to the end of the process, whatever it is doing: less than the 30 s after which supervisors kill
it. All acknowledged events are on the disk anyway."""

maintainer_pause_s_min: Final = 0.5
"""A failed operation is retried after this time; the pause doubles with each further failure."""

maintainer_pause_s_max: Final = 60.0
"""The longest pause: disk space or memory may be available again."""

view_pause_s_min: Final = 10.0
"""A view that was paused for lack of memory is resumed after this time; the pause doubles with each further failure."""

health_check_s: Final = 1.0
"""How often a broker checks its health. Supervisors ask about as often."""

health_age_s_max: Final = 15.0
"""A report of the health that is older than this is no longer valid: the check itself does not end."""

memory_warned_share: Final = 0.9
"""The share of `memory_max` from which on the use of memory is a trouble."""

commit_s_max: Final = 10.0
"""A commit takes milliseconds. If one takes longer than this, the disk does not answer."""

maintainer_silent_s_max: Final = 30.0
"""A maintainer that takes longer than this for one step waits for a process that does not answer, or computes a batch
that is much too large."""

view_size_check_s: Final = 1.0
"""How often the sizes of the views' state are compared with the limit."""

view_pause_s_max: Final = 600.0
"""The longest of these pauses: to resume a view costs a fill."""

origin_max: Final = 1023
"""The greatest number of an origin: a tick has ten bits for it."""

settings_file_bytes_max: Final = 2**20
"""A settings file has about thirty lines; a larger file is something else."""

setting_chars_max: Final = 4096
"""The longest path on Linux."""

setting_max: Final = 2**40
"""The greatest number in a setting: more than any machine has of anything that is counted."""

deleted_rows_max: Final = 10_000
"""Deleted rows of a view that are kept for subscribers that have not received the deletion, in addition to as many as
the view shows. A subscriber that misses a dropped deletion gets a new snapshot."""

progress_marks_max: Final = 10_000
"""Progress marks of a view from which a subscriber can resume with changes only: some minutes at many batches a second.
Older resume tokens get a new snapshot."""

progress_pause_s: Final = 1.0
"""Time between two messages to one subscriber that contain only progress."""

progress_pause_each_s: Final = 0.001
"""If a view has many subscribers, the pause is this long for each of them: this bounds the rate of such messages."""

access_age_s_max: Final = 0.5
"""A running broker reads tokens and grants again after this time: a change must take effect within a second."""

access_wait_s_max: Final = 5.0
"""A command that changes tokens or grants waits this long for another command; each takes milliseconds."""

access_broker_wait_s_max: Final = 0.02
"""The broker waits only this long for such a command, then uses the tokens and grants it has: all clients wait with
it."""

principal_chars_max: Final = 200
"""Names of principals, and of the objects of grants."""

log_value_chars_max: Final = 8_000
"""A value in a line of the broker's own log, which may quote a client's message. Longer values are truncated."""

flight_calls_max: Final = 256
"""Concurrent calls of Arrow Flight: each occupies a thread. Readers of the log have the same number of their own, so
that stalled subscribers do not block Spark tasks."""

flight_calls_per_principal_max: Final = 64
"""Concurrent calls of Arrow Flight of one principal, where tokens are required: one principal does not use up all."""

flight_streams_max: Final = 128
"""Concurrent calls of one connection of Arrow Flight, also of those that are being refused. gRPC tells it to its
clients, which wait."""

flight_headers_bytes_max: Final = 2**14
"""Headers of a call of Arrow Flight: a token and a few names."""

flight_decoding_bytes_max: Final = 2**28
"""Bytes of published batches that are decoded at a time, after decompression. Others wait."""

unread_s_max: Final = 60.0
"""A client that does not read its answer for this long is disconnected. A subscriber resumes with its token."""

snapshot_part_rows_max: Final = 2_000
snapshot_part_bytes: Final = 2**18
"""Rows and bytes of one part of a snapshot, unless a single row is larger. A client that does not read costs the memory
of a part. A part that is read within `unread_s_max` is four kilobytes a second."""

snapshot_bytes_small: Final = 2**16
"""A snapshot of this size is sent at once, and is not counted: a connection buffers as much anyway."""

encoded_row_bytes_max: Final = 2**14
"""Larger rows of snapshots are encoded again for each snapshot. Smaller ones are cached until they change; thousands of
outdated ones may be in the cache."""

snapshots_max: Final = 256
"""Larger snapshots that are being sent at a time, over HTTP: with a part each, 64 MiB."""

snapshots_bytes_max: Final = 2**28
"""Bytes that snapshots in progress may keep in memory, besides the current rows of the view that is asked for: a
snapshot refers to rows that the view may have replaced since."""

snapshot_s_max: Final = 600.0
"""Time in which a snapshot must be read. A client with a slower line subscribes, which keeps nothing in memory."""

flight_rows_max: Final = 16_384
"""Rows of a batch to a subscriber over Arrow Flight. Each subscriber has one such batch in flight at a time."""

flight_batch_bytes: Final = 2**22
"""The target size of a batch over Arrow Flight. Batches of large rows have fewer rows."""

flight_log_threads: Final = 4
"""Concurrent reads of the log over Arrow Flight. Others wait, so that memory is used for this many ranges only."""

flight_request_bytes_max: Final = 2**20
"""A ticket, the body of an action, or the metadata of a batch: names, ticks and conditions."""

flight_check_s: Final = 0.5
"""A subscription over Arrow Flight without new rows checks this often whether its client is connected and
authorized."""

flight_waiting_bytes_max: Final = 2**29
"""Bytes of incomplete messages over Arrow Flight, of all connections together: gRPC buffers them."""

flight_proxy_bytes: Final = 2**18
"""Bytes buffered for a connection of Arrow Flight whose other end does not read: enough for full speed."""

flight_warn_s: Final = 10.0
"""The broker's own log reports refused connections of Arrow Flight at most this often."""

flight_refusal_s: Final = 0.5
"""A refused client of Arrow Flight has this long to read the reason before its connection is closed."""

flight_stop_s_max: Final = 3.0
"""A stopping broker waits this long for calls of Arrow Flight to end, then closes their connections."""

flight_error_chars_max: Final = 400
"""Text of an error over Arrow Flight: the headers of a response contain it several times, and are limited to 8 KiB."""

remote_log_tries_max: Final = 6
"""Attempts of a remote log reader before it gives up, about three seconds in all."""

remote_log_pause_s: Final = 0.1
"""Pause before the second attempt; each further pause is twice as long."""

remote_log_answer_s_max: Final = 60.0
"""Finding the commits of a batch takes milliseconds, sending its events seconds. A broker that takes longer is
stuck."""

errors_reported_max: Final = 100
"""Errors of a program in one response: more than anybody fixes at once."""

delivery_round_s_max: Final = 0.05
"""Duration of a round of sending to subscribers, and of the pause after it: other work waits no longer for the
gateway's event loop."""

gateway_threads: Final = 4
"""Snapshots and programs that are computed concurrently: each may take a core and the memory of a view."""

compressed_bytes_min: Final = 2**10
"""Smaller files of the console fit into one packet, so they are sent as they are."""

body_bytes_small: Final = 2**16
"""Bodies of this size are decoded within milliseconds, so it is done at once. Larger ones are decoded in a thread. The
same holds for publications on a WebSocket."""

answer_ticks_small: Final = 5_000
"""The answer to a publication of so many events is encoded within milliseconds. Larger ones are encoded in a thread."""

query_parameters_max: Final = 100
"""Parameters of a query string: more than there are columns in a condition on a view."""

streams_named_max: Final = 10_000
"""Streams in the progress that a client sends: more than a program has."""

producer_chars_max: Final = 200
"""The name of a producer is stored with every batch that it publishes."""

sequence_max: Final = 2**63 - 1
"""The greatest sequence number of a producer: a signed 64-bit integer, as in SQLite and most languages."""

window_max: Final = 1_000_000
"""Frames that a subscriber may have received without acknowledging them."""

filter_chars_max: Final = 10_000
"""A filter of a subscription: its text is in the record of the subscription, and errors quote it."""

condition_boxes_max: Final = 64
"""Boxes of a condition in the registry. Each OR of different columns may add one; with more, a solver is as fast."""

solver_steps_max: Final = 2_000_000
"""Steps of the solver for one question about a condition, about a second. They are counted, not timed, so that all
brokers get the same answer."""

durable_window_events: Final = 4_000
"""Events that a durable subscriber receives before it must acknowledge some, unless it asks for more or fewer: some
frames, so that it never waits if it acknowledges each."""

durable_subscriptions_max: Final = 1_000
"""Durable subscriptions of one principal. Each holds back the removal of events from the log."""

durable_threads: Final = 4
"""Threads that read the log for durable subscriptions."""

ranges_cached_max: Final = 64
ranges_cached_bytes_max: Final = 2**26
"""Ranges of the log that were read last for durable subscriptions: those that follow a stream closely share them."""

frame_rows_max: Final = 500
"""Rows of one message to a subscriber: enough to be efficient, few enough that a slow subscriber does not get outdated
rows."""

encoded_ahead_rows_max: Final = 4_000
"""Rows of one view that are encoded together before they are sent to subscribers: a small part of a round's time."""

encoded_events_bytes_max: Final = 2**24
"""Encoded events that are kept for all durable subscriptions together, for those that follow a stream closely."""

frame_rows_bytes_max: Final = 2**20
"""Bytes of the rows of one message to a subscriber, unless a single row is larger: sent quickly, and small for any
client."""

publications_unanswered_max: Final = 1_000
"""Unanswered publications of one connection. Until one is answered, no further message of it is read."""

head_bytes_max: Final = 2**16
"""Request line and headers: resume tokens and conditions have a few hundred bytes each."""

request_s_max: Final = 30
"""Time in which a request must have arrived: a megabyte takes a second on a slow line."""

keep_alive_s: Final = 75
"""An idle connection is closed after this time: longer than proxies and clients keep theirs."""

heartbeat_s: Final = 15
"""Time between two heartbeats on a stream of server-sent events: proxies close connections that are idle for a
minute."""

wait_ms_max: Final = 60_000
"""The longest time that a snapshot waits for a tick. A client that wants to wait longer subscribes."""

stop_s_max: Final = 10
"""Time from the signal to the end of the process. Publications unanswered by then are not acknowledged, and their
publishers send them again."""

client_message_bytes_max: Final = 2**20
"""The default size limit of a message to the broker."""

client_received_bytes_max: Final = 2**28
"""A message from the broker: a mebibyte of rows, or a single row that is larger."""

client_window_frames: Final = 8
"""Frames of a subscription that are in transit or not processed yet. Further changes wait at the broker, which merges
them."""

client_pending_max: Final = 4_096
"""Unacknowledged publications of a client. Then `publish` waits: after a lost connection all of them are sent again."""

client_publication_events: Final = 10_000
"""Events of a data frame or an iterator that the client publishes in one message, before it waits for the answer."""

notebook_rows_max: Final = 100
"""Rows of a table that a notebook shows: more would make its page slow."""

notebook_series_max: Final = 12
"""Lines of a plot in a notebook: nobody can tell more of them apart."""

notebook_samples_max: Final = 500
"""Points of a line that shows how a value evolves: about one for each pixel."""

client_pause_s_min: Final = 0.05
client_pause_s_max: Final = 5.0
"""The pause between attempts to connect doubles from the least to the greatest: short enough for a restart, long enough
for a broker that restarts with a thousand clients."""

client_ping_s: Final = 10.0
"""A connection without a message for this long is pinged, and closed if there is no reply within the same time."""

client_timeout_s: Final = 30.0
"""A request to the broker that takes longer has failed."""

spark_publish_s_max: Final = 60.0
"""How long a batch of a Spark query is published again while the broker cannot be reached. It may be restarting; then
Spark repeats the batch."""

wait_ms_default: Final = 5_000
"""How long a snapshot waits for a tick by default: a batch on Spark takes a second at most."""

peer_idle_s: Final = 60
"""After this idle time, the operating system checks whether the peer of a connection is still there."""

backlog: Final = 1_024
"""Connections that wait to be accepted: after a restart all clients connect at once."""

other_files_max: Final = 512
"""Open files of a broker besides its connections: the log, state, Spark's sockets."""

publication_events_max: Final = 1_000_000
"""Events of one publication: the log gets all or none of them, and other publications wait meanwhile."""

publication_bytes_max: Final = 2**28
"""Bytes of one publication after dictionary-encoded text is expanded."""

publisher_events_max: Final = 2_000_000
publisher_bytes_max: Final = 2**29
"""Published events that are not in the log yet. More are refused at once, so that memory does not fill while a disk is
slow."""

commit_group_events_max: Final = 200_000
commit_group_bytes_max: Final = 2**26
"""Events that are flushed to the disk together. With more, the first publishers would wait too long."""

producers_known_max: Final = 100_000
"""Producers whose last sequence number is cached in memory; others are read from the log."""

connections_refused_max: Final = 100
"""Connections beyond the limit that get an error response; further ones are closed without one."""

body_bytes_discarded_max: Final = 2**24
"""This much of an oversized body is read before the refusal, so that the client receives the response."""

inbox_pieces_max: Final = 10_000
"""Pieces of one origin that wait behind a gap. The others are asked for again."""

imports_max: Final = 1_000
"""Imports over one link. A larger number is a mistake, and costs memory at the neighbour."""

link_window_bytes: Final = 8 * 2**20
"""Bytes under way on a link. A slow neighbour costs at most this much memory; at 5 ms it allows 1.6 GB a second."""

link_header_bytes_max: Final = 2**20
"""The header of a message between brokers. It has horizons, about fifty bytes for each stream and origin."""

link_name_chars_max: Final = 200
"""A name in a message between brokers."""

link_text_chars_max: Final = 10_000
"""A condition, a digest or a message of an error between brokers."""

link_streams_max: Final = 10_000
"""Streams, or origins of a stream, in a message between brokers."""

relayed_bytes_max: Final = 16 * 2**20
"""Events of one stream that were asked for on behalf of neighbours, and are not sent to all of them yet."""

routing_entries_max: Final = 100_000
"""Advertisements, subscriptions and relations that a neighbour may tell of. A larger table is a mistake."""

routing_update_entries_max: Final = 200
routing_update_chars_max: Final = 200_000
"""Entries of one update, and characters of their descriptions: an update fits in a header."""

routing_description_chars_max: Final = 50_000
"""The description of an advertised stream. One with 500 columns has about as much."""

routing_path_max: Final = 100
"""Brokers on the way of an advertisement."""

routing_change_s_max: Final = 30.0
"""A change of the program waits this long for a change of routed imports, which takes less than a second."""

routing_drop_s: Final = 10.0
"""An import that no subscription needs is dropped after this time: a subscriber may only be away for a moment."""

link_ranges_max: Final = 1_000
"""Ranges that a broker asks for at once, or sends in one message. More of them follow."""

description_bytes_max: Final = 4 * program_bytes_max
"""The description of a relation that a neighbour sends: a part of a program, and its type."""

links_max: Final = 100
"""Neighbours that have called. Each has a thread, and up to a window of memory each way."""

link_message_bytes_max: Final = publication_bytes_max + 2 * link_header_bytes_max
"""A message between brokers. Most have about a mebibyte; one with a single large publication has more."""

link_bundle_messages_max: Final = 1_000
"""Messages in one packet. More of them are several packets."""

link_request_bytes_max: Final = 4 * 2**20
"""A message of a neighbour that nothing is imported from: it has no data."""

link_inbox_bytes_max: Final = 2 * link_window_bytes
"""Bytes that have arrived on a link and are not processed. A neighbour that obeys the window sends fewer; from others,
nothing is read meanwhile."""

link_queue_bytes_max: Final = 2**20
"""Bytes of a link that wait for its connection. Until they are written, no more data is read for it."""

link_stop_s_max: Final = 2.0
"""A stopping broker waits this long for the threads of its links."""

neighbour_answer_s_max: Final = 10.0
"""A neighbour that does not answer a call within this time is away."""

first_answer_s_max: Final = 2.0
"""A broker that starts waits so long for the descriptions of a neighbour before it serves others: the neighbour may
just be starting too, and wait for this one."""

description_wait_s_max: Final = 5.0
"""A neighbour whose description is missing is asked again after this time, or sooner."""

import_wait_s_max: Final = 0.1
"""What was imported waits at most this long for the next commit."""

link_absence_s_max: Final = 10.0
"""A neighbour without a link for longer than this is a trouble: a restart takes less."""

webhook_attempts_max: Final = 10
"""Attempts at a row for which the receiver of a webhook answers that it has failed. Then the row is a dead letter."""

postgres_lock_s_max: Final = 30
"""An installation in a database waits this long for a transaction that uses the schema. While it waits, others wait for
it."""

proxy_text_bytes_max: Final = 2**20
"""A query text that the proxy of PostgreSQL's protocol reads. A longer one passes through in chunks, untranslated: an
event that is accepted is shorter, and reading longer texts would hold up other connections."""

proxy_connections_max: Final = 100
"""Connections through the proxy at a time, unless an option says otherwise. PostgreSQL allows as many by default."""

proxy_startup_s_max: Final = 60
"""A client that does not say within this time whom it is, is disconnected. PostgreSQL waits as long."""

proxy_connect_s_max: Final = 10
"""How long the proxy tries to reach the server before it refuses its client."""

proxy_close_s_max: Final = 30.0
"""How long the proxy waits until the last bytes of a connection are read. TLS is closed in the same time."""

proxy_stop_s_max: Final = 1.0
"""A stopping proxy waits this long for connections to close, and then aborts them."""

proxy_startup_bytes_max: Final = 10_000
"""The first message of a client: user, database, options. PostgreSQL accepts no longer one."""

rate_sample_s: Final = 1.0
"""How often the rates of streams and views are sampled."""

newest_events_max: Final = 1_000
"""The newest events of a stream that one request returns."""

queries_max: Final = 16
"""Ad-hoc queries at a time. Each has a thread, and shares the processor with the publisher."""

queries_each_max: Final = 8
"""Ad-hoc queries at a time of one principal."""

query_bytes_max: Final = 2**28
"""The state of one ad-hoc query. One that needs more ends with an error."""

query_lease_s: Final = 15.0
"""An ad-hoc query ends when nobody has subscribed to it, or read it, for this long: a page that is loaded again is
back sooner."""

query_chars_max: Final = 2**16
"""The text of an ad-hoc query."""

delays_kept: Final = 2_000
"""Delays of publications, and of deliveries, of which `/status` shows the median."""

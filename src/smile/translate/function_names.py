"""The names of scalar functions in SmileSQL: those of the catalogue, other names for them, and what to write instead of
functions of other dialects."""

from smile.algebra.functions.catalogue import SCALAR_FUNCTIONS

SYNONYMS = {
    "ceiling": "ceil", "pow": "power", "char_length": "length", "character_length": "length", "len": "length",
    "substr": "substring", "strpos": "position", "ucase": "upper", "lcase": "lower", "mod": "%", "ifnull": "coalesce",
    "nvl": "coalesce", "btrim": "trim", "log": "log10", "array_join": "array_to_string", "array_size": "cardinality",
    "jsonb_typeof": "json_typeof", "jsonb_array_length": "json_array_length",
    "json_extract_path": "json_path", "jsonb_extract_path": "json_path", "json_extract_path_text": "json_path_text",
    "jsonb_extract_path_text": "json_path_text", "jsonb_exists": "json_has_key", "to_jsonb": "to_json",
    "jsonb_build_object": "json_build_object", "jsonb_build_array": "json_build_array",
    **{f: f"extract_{f}" for f in ("year", "quarter", "month", "week", "day", "hour", "minute", "second")},
    "dayofmonth": "extract_day", "dayofyear": "extract_doy",
}  # fmt: skip
_OPERATORS = frozenset({"and", "or", "not", "neg", "like", "ilike", "array", "subscript"})
CALLABLE_FUNCTIONS = frozenset(
    {n for n in SCALAR_FUNCTIONS if n.isidentifier() and not n.startswith("extract_")} - _OPERATORS | {"%"}
)
"""The functions that can be called by name."""

DATE_FORMAT_NAMES = ("date_format", "format_timestamp")
"""Names of TO_CHAR with formats of other dialects."""

NO_CLOCK_HINT = (
    "A view depends only on events. In WHERE, t > NOW() - INTERVAL '1' HOUR is true of the last hour's rows."
)
_COLLECT_HINT = (
    "GROUP(a, b) AS x collects columns of the members as a nested relation, ARRAY_AGG(a) the values of one as an array."
)
_JSON_PATH_HINT = "Write j #>> '{a,0}' for the text of a part, and j #> '{a,0}' for the part as JSON."
_JSON_AGGREGATE_HINT = f"{_COLLECT_HINT} JSON_BUILD_OBJECT('a', a) and JSON_BUILD_ARRAY(a, b) make JSON of a row."
_NUMBERS_HINT = (
    "The functions of numbers are ABS, CEIL, EXP, FLOOR, LN, LOG10, MOD, POWER, ROUND, SIGN, SQRT and TRUNC."
)
_RANK_HINT = (
    "LATEST(x) and EARLIEST(x) are the values of the last and the first row, ARG_MAX(x, y) of that with the greatest y."
)
FUNCTION_HINTS = {
    **dict.fromkeys(("collect_list", "collect_set"), _COLLECT_HINT),
    **dict.fromkeys(("random", "rand", "uuid", "gen_random_uuid"), "A view is a function of its events only."),
    **dict.fromkeys(("clock_timestamp", "proctime", "sysdate", "getdate", "mz_now"), NO_CLOCK_HINT),
    **dict.fromkeys(("first", "last", "any_value", "latest_by_offset", "earliest_by_offset"), _RANK_HINT),
    "mode": "Count the rows of each value, and take ARG_MAX(x, n) of the counts.",
    "element_at": "Write a[1], counted from 1.",
    "array_length": "Write ARRAY_LENGTH(a, 1), or CARDINALITY(a).",
    "array_append": "ARRAY_AGG(a) makes an array of the values of a group.",
    **dict.fromkeys(("json_value", "json_query", "json_extract", "get_json_object"), _JSON_PATH_HINT),
    **dict.fromkeys(("json_exists", "json_contains"), "Write j ? 'a', or j #> '{a,0}' IS NOT NULL."),
    **dict.fromkeys(("json_object", "row_to_json"), "Write JSON_BUILD_OBJECT('a', a, 'b', b)."),
    **dict.fromkeys(("parse_json", "json_parse"), "Write CAST(s AS json)."),
    **dict.fromkeys(("json_agg", "jsonb_agg", "json_object_agg", "jsonb_object_agg", "xmlagg"), _JSON_AGGREGATE_HINT),
    "grouping": "GROUPING(a, b) takes expressions of GROUP BY, in the select list and in HAVING.",
    **dict.fromkeys(
        ("row_number", "rank", "dense_rank"), "Write ROW_NUMBER() OVER (PARTITION BY a ORDER BY b) <= k in QUALIFY."
    ),
    "strftime": "Write TO_CHAR(t, 'YYYY-MM-DD HH24:MI:SS').",
    **dict.fromkeys(("to_timestamp", "from_unixtime"), "Write TIMESTAMP '1970-01-01' + x * INTERVAL '1' SECOND."),
    **dict.fromkeys(("unix_timestamp", "to_unixtime"), "Write EXTRACT(EPOCH FROM t)."),
    "datepart": "Write EXTRACT(HOUR FROM t).",
    "nvl2": "Write CASE WHEN a IS NOT NULL THEN b ELSE c END.",
    "decode": "Write CASE a WHEN 1 THEN 'one' ELSE 'other' END.",
    "convert": "Write CAST(a AS type).",
    **dict.fromkeys(("instr", "locate", "charindex"), "Write POSITION(part IN whole)."),
    **dict.fromkeys(("split_index", "split"), f"Write SPLIT_PART(s, ',', 1) for the first part. {_COLLECT_HINT}"),
    **dict.fromkeys(("ends_with", "endswith"), "Write s LIKE '%end', or RIGHT(s, 3) = 'end'."),
    "startswith": "Write STARTS_WITH(s, 'start').",
    "contains": "Write POSITION(part IN whole) > 0, or whole LIKE '%part%'.",
    "regexp_count": "Use REGEXP_LIKE(s, p), or LENGTH(s) - LENGTH(REPLACE(s, 'a', '')) for one character.",
    "space": "Write REPEAT(' ', n).",
    "log2": "Write LN(x) / LN(2).",
    **dict.fromkeys(
        ("octet_length", "bit_length", "encode", "hash", "sha256", "sha1"),
        "LENGTH(s) is the number of characters, MD5(s) a hash.",
    ),
    **dict.fromkeys(("quote_literal", "quote_ident"), "Use || to put quotes around a string."),
    **dict.fromkeys(("count_if", "countif"), "Write COUNT(*) FILTER (WHERE condition)."),
    **dict.fromkeys(("sum_if", "sumif"), "Write SUM(x) FILTER (WHERE condition)."),
    "logical_and": "Write BOOL_AND(condition).",
    "logical_or": "Write BOOL_OR(condition).",
    "grouping_id": "Write GROUPING(a, b).",
    **dict.fromkeys(("topk", "topkdistinct"), "Write BEST 3 BY x DESC PER a at the end of the query."),
    "histogram": "Count the rows of each value, with GROUP BY a, x.",
    **dict.fromkeys(("kurtosis", "skewness", "skew"), "Compute it of AVG(x), AVG(x * x) and so on."),
    "columns": "List the columns.",
    **dict.fromkeys(("regexp_matches", "regexp_extract"), "Use REGEXP_SUBSTR(s, p), or REGEXP_LIKE(s, p)."),
    **dict.fromkeys(
        ("session", "session_start", "session_end"), "Use SESSION(s PARTITION BY a, t, INTERVAL …) in FROM."
    ),
    **dict.fromkeys(
        ("tumble", "hop", "tumble_start", "tumble_end", "hop_start"), "Use TUMBLE(s, t, INTERVAL …) in FROM."
    ),
    **dict.fromkeys(
        ("unnest", "ungroup", "explode", "flatten"),
        "Write FROM s, UNNEST(s.tags) AS u (tag). The rows of a nested relation are those of the query that it was "
        "made of.",
    ),
    **dict.fromkeys(
        ("time_bucket", "date_bin", "date_slice", "bin"),
        "Write FROM TUMBLE(s, t, INTERVAL '5' MINUTE), and GROUP BY window_start.",
    ),
    **dict.fromkeys(("sin", "cos", "tan", "asin", "acos", "atan", "atan2", "pi", "radians", "degrees"), _NUMBERS_HINT),
    **dict.fromkeys(("cbrt", "gcd", "lcm", "factorial"), _NUMBERS_HINT),
    **dict.fromkeys(("corr", "covar_pop", "covar_samp", "regr_slope"), "Compute it of AVG(x), AVG(y) and AVG(x * y)."),
    **dict.fromkeys(("bit_and", "bit_or", "bit_xor"), "Use BOOL_AND or BOOL_OR of Boolean columns."),
    "regexp_match": "Use REGEXP_SUBSTR(s, p), or REGEXP_LIKE(s, p).",
    "age": "Write a - b, an interval.",
    "div": "Write TRUNC(a / b).",
    "safe_divide": "Write a / b, which is NULL where b is 0.",
    "dayofweek": "Write EXTRACT(DOW FROM t): Sunday is 0. In some dialects it is 1.",
    **dict.fromkeys(
        ("make_date", "make_timestamp", "to_date"), "Write CAST(s AS date), or CAST(s AS timestamp), of a string."
    ),
    **dict.fromkeys(("dateadd", "date_add", "timestampadd"), "Write t + INTERVAL '1' DAY."),
    **dict.fromkeys(("date_sub", "datesub"), "Write t - INTERVAL '1' DAY."),
    **dict.fromkeys(("datediff", "date_diff", "timestampdiff"), "Write a - b, an interval, or of dates the days."),
    **dict.fromkeys(("timestamp_trunc", "datetime_trunc"), "Write DATE_TRUNC('hour', t)."),
    "overlay": "Use SUBSTRING and ||.",
    "format": "Use CONCAT.",
    "row": "Write a list of values, (a, b) = (1, 2), or list the columns.",
    "any": "Write x IN (1, 2), x = ANY (SELECT …) or x = ANY(array).",
    "generate_series": "Every row of a view comes from streams.",
}
"""What to write instead of functions of other dialects."""

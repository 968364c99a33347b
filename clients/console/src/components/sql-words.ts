/** The words of SmileSQL. `make reference` writes this file from the parser. */

export const KEYWORDS =
  "advertise all and anti any approx_percentile approx_quantile arg_max arg_min array array_agg as asc asof avg best " +
  "between bool_and bool_or both broker by case cast changes check collate count create cross cube current current_date " +
  "current_time current_timestamp current_user day default dense_rank desc descriptor distinct domain earliest else end " +
  "escape every except exists false fetch file filter first first_value following for from full global group " +
  "group_concat grouping groups having home hop hour if ilike import in inner intersect into is isnull join key lag " +
  "last last_value lateral latest lead leading left like limit listagg localtime localtimestamp many match_recognize " +
  "max max_by median merge min min_by minute month natural next none not notnull null nulls offset on one only or order " +
  "ordinality origins outer over partition per percentile percentile_approx percentile_cont percentile_disc pivot " +
  "preceding primary publisher qualify quantile quantile_cont quantile_disc range rank recursive references republisher " +
  "right rollup row row_number rows second select semi session sets silence similar some static stddev stddev_pop " +
  "stddev_samp stream string_agg subscribe subscriptions sum table tablesample then ticks timestamptz to trailing true " +
  "tumble unbounded union unique unnest unpivot using values var_pop var_samp variance view week when where window with " +
  "within year";

export const FUNCTIONS =
  "abs array_contains array_join array_position array_size array_to_string ascii btrim cardinality ceil ceiling " +
  "char_length character_length chr coalesce concat concat_ws date_trunc dayofmonth dayofyear exp floor greatest ifnull " +
  "initcap json_array_length json_build_array json_build_object json_extract_path json_extract_path_text json_get " +
  "json_get_text json_has_key json_path json_path_text json_typeof jsonb_array_length jsonb_build_array " +
  "jsonb_build_object jsonb_exists jsonb_extract_path jsonb_extract_path_text jsonb_typeof lcase least len length ln " +
  "log log10 lower lpad ltrim md5 mod nullif nvl period_end position pow power quarter regexp_like regexp_replace " +
  "regexp_substr repeat replace reverse round rpad rtrim sign split_part sqrt starts_with string_to_array strpos substr " +
  "substring to_char to_json to_jsonb to_timestamp translate trim trunc ucase upper width_bucket";

export const TYPES =
  "bigint bool bytes date decimal double float int interval json relation string text time timestamp varchar";

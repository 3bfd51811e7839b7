"""Functions of Spark that queries may call, by their names: those that give the same for the same rows, each time.

What is in no list here is refused. A function is listed as one of rows, of a group, or of a window.
"""

from __future__ import annotations


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


OF_ROWS = _names(
    """
    abs acos acosh add_months array array_append array_compact array_contains array_distinct array_except
    array_insert array_intersect array_join array_max array_min array_position array_prepend array_remove array_repeat
    array_size array_sort array_union arrays_overlap arrays_zip ascii asin asinh atan atan2 atanh base64 bigint bin
    binary bit_count bit_get bit_length boolean bround btrim cardinality cbrt ceil ceiling char char_length
    character_length chr coalesce concat concat_ws contains conv convert_timezone cos cosh cot crc32 csc date
    date_add date_format date_from_unix_date date_part date_sub date_trunc dateadd datediff datepart day dayname
    dayofmonth dayofweek dayofyear decimal decode degrees double elt encode endswith equal_null exists exp expm1
    factorial filter find_in_set flatten float floor forall format_number format_string from_csv from_json
    from_unixtime from_utc_timestamp get get_json_object getbit greatest hash hex hour hypot if ifnull ilike initcap
    instr int is_valid_utf8 isnan isnotnull isnull json_array_length json_object_keys last_day lcase least
    left len length levenshtein like ln locate log log10 log1p log2 lower lpad ltrim luhn_check make_date
    make_dt_interval make_interval make_timestamp make_timestamp_ltz make_timestamp_ntz make_ym_interval map
    map_concat map_contains_key map_entries map_filter map_from_arrays map_from_entries map_keys map_values
    map_zip_with mask md5 minute mod month monthname months_between named_struct nanvl negative next_day not nullif
    nullifzero nvl nvl2 octet_length overlay parse_url pi pmod position positive pow power printf quarter radians
    reduce aggregate regexp regexp_count regexp_extract regexp_extract_all regexp_instr regexp_like regexp_replace
    regexp_substr repeat replace reverse right rint rlike round rpad rtrim schema_of_json sec second sequence sha sha1
    sha2 shiftleft shiftright shiftrightunsigned sign signum sin sinh size slice smallint sort_array soundex space
    split split_part sqrt startswith str_to_map string struct substr substring substring_index tan tanh timestamp
    timestamp_micros timestamp_millis timestamp_seconds tinyint to_binary to_char to_csv to_date to_json to_number
    to_timestamp to_timestamp_ltz to_timestamp_ntz to_unix_timestamp to_utc_timestamp to_varchar transform
    transform_keys transform_values translate trim trunc try_add try_divide try_element_at try_make_timestamp
    try_mod try_multiply try_parse_json try_subtract try_to_binary try_to_date try_to_number try_to_timestamp
    try_url_decode ucase unbase64 unhex unix_date unix_micros unix_millis unix_seconds unix_timestamp upper url_decode
    url_encode weekday weekofyear width_bucket xxhash64 year zeroifnull zip_with element_at
    """
)
"""Functions of the values of one row."""

OF_GROUPS = _names(
    """
    approx_count_distinct avg bit_and bit_or bit_xor bool_and bool_or corr count count_if covar_pop covar_samp every
    kurtosis max max_by mean median min min_by percentile percentile_cont percentile_disc regr_avgx regr_avgy
    regr_count regr_intercept regr_r2 regr_slope regr_sxx regr_sxy regr_syy skewness std stddev stddev_pop
    stddev_samp sum try_avg try_sum var_pop var_samp variance
    """
)
"""Aggregates that are the same in whatever order the rows of a group come."""

SORTED_ONLY = frozenset({"collect_list", "collect_set", "array_agg"})
"""Aggregates whose result has the order of the rows: allowed directly within a function that sorts it."""

SORTING = frozenset({"sort_array", "array_sort"})

OF_WINDOWS = _names(
    """
    cume_dist dense_rank first first_value lag last last_value lead nth_value ntile percent_rank rank row_number
    """
)
"""Functions of the rows of a window in its order."""

OF_THE_CLOCK = _names(
    """
    curdate current_date current_datetime current_time current_timestamp getdate localtimestamp now
    """
)

OF_CHANCE = _names(
    """
    monotonically_increasing_id rand randn random randstr shuffle spark_partition_id uniform uuid
    input_file_block_length input_file_block_start input_file_name
    """
)

OF_THE_SESSION = _names(
    """
    current_catalog current_database current_role current_schema current_timezone current_user session_user user
    version
    """
)

OF_ANY_ROW = frozenset({"any_value", "first", "first_value", "last", "last_value", "mode", "listagg", "string_agg"})
"""Aggregates that give the value of whatever row comes first or last."""

OF_A_SKETCH = frozenset({"approx_percentile", "percentile_approx", "approx_top_k", "histogram_numeric"})

MAKES_ROWS = _names(
    """
    explode explode_outer inline inline_outer json_tuple posexplode posexplode_outer stack
    """
)

OF_TIME_WINDOWS = frozenset({"session_window", "window", "window_time"})

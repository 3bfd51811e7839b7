"""The text of a query becomes a tree: of what is known to be kept right, everything else is refused in words.

Functions stay as they are written: sqlglot would write some of them otherwise, such as the patterns of dates.
"""

from __future__ import annotations

import logging
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, NoReturn

import sqlglot
from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import ErrorLevel
from sqlglot.parsers.spark import SparkParser
from sqlglot.tokens import TokenType

from streaming.base import PARSER_ERRORS, BadQuery
from streaming.sql import functions


def _part_of_text(name: str) -> Callable[[SparkParser], exp.Expr]:
    """The parser of a call `name(text from first for length)` with its commas for the words, behind the bracket."""

    def parse(parser: SparkParser) -> exp.Expr:
        arguments = [parser._parse_bitwise()]
        for word in (TokenType.FROM, TokenType.FOR):
            if not parser._match_set((TokenType.COMMA, word)):
                break
            arguments.append(parser._parse_bitwise())
        return exp.Anonymous(this=name, expressions=arguments)

    return parse


class QuerySpark(Spark):
    """Spark's dialect with every function as it is written."""

    class Parser(SparkParser):
        """The parser of Spark's dialect, without its translations of functions."""

        FUNCTIONS: ClassVar[dict[str, Any]] = {}
        FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {
            **{name: SparkParser.FUNCTION_PARSERS[name] for name in ("CAST", "TRY_CAST", "EXTRACT")},
            **{name.upper(): _part_of_text(name) for name in ("substring", "substr")},
        }

        def _parse_interval(self, *args: Any, **options: Any) -> Any:
            # An interval of several units becomes a sum, of which a minus before it would be that of the first alone.
            found = super()._parse_interval(*args, **options)
            return exp.Paren(this=found) if isinstance(found, exp.Add) else found


_BINARY = ("this", "expression")
_ANY_OF_THEM: tuple[type[exp.Expr], ...] = (
    exp.Add,
    exp.And,
    exp.BitwiseAnd,
    exp.BitwiseNot,
    exp.BitwiseOr,
    exp.BitwiseXor,
    exp.Div,
    exp.DPipe,
    exp.EQ,
    exp.Escape,
    exp.GT,
    exp.GTE,
    exp.IntDiv,
    exp.Is,
    exp.LT,
    exp.LTE,
    exp.Mod,
    exp.Mul,
    exp.NEQ,
    exp.Neg,
    exp.Not,
    exp.NullSafeEQ,
    exp.NullSafeNEQ,
    exp.Or,
    exp.Paren,
    exp.RegexpLike,
    exp.Sub,
)
_ARGUMENTS: dict[type[exp.Expr], tuple[str, ...]] = {
    **dict.fromkeys(_ANY_OF_THEM, (*_BINARY, "typed", "safe")),
    exp.Alias: ("this", "alias"),
    exp.Anonymous: ("this", "expressions"),
    exp.Between: ("this", "low", "high"),
    exp.Boolean: ("this",),
    exp.Bracket: ("this", "expressions"),
    exp.Case: ("this", "ifs", "default"),
    exp.Cast: ("this", "to", "_type"),
    exp.Column: ("this", "table", "db", "catalog"),
    exp.ColumnDef: ("this", "kind"),
    exp.CTE: ("this", "alias"),
    exp.DataType: ("this", "expressions", "nested", "_type"),
    exp.DataTypeParam: ("this",),
    exp.Distinct: ("expressions",),
    exp.Dot: _BINARY,
    exp.Except: ("this", "expression", "distinct", "with_", "order", "limit", "offset"),
    exp.Exists: ("this",),
    exp.Extract: _BINARY,
    exp.Filter: _BINARY,
    exp.From: ("this",),
    exp.Group: ("expressions", "all"),
    exp.Having: ("this",),
    exp.HexString: ("this",),
    exp.Identifier: ("this", "quoted"),
    exp.If: ("this", "true", "false"),
    exp.IgnoreNulls: ("this",),
    exp.ILike: (*_BINARY, "negate"),
    exp.In: ("this", "expressions", "query"),
    exp.Intersect: ("this", "expression", "distinct", "with_", "order", "limit", "offset"),
    exp.Interval: ("this", "unit"),
    exp.IntervalSpan: _BINARY,
    exp.Join: ("this", "side", "kind", "on", "using"),
    exp.Lambda: ("this", "expressions"),
    exp.Like: (*_BINARY, "negate"),
    exp.Limit: ("expression",),
    exp.Literal: ("this", "is_string"),
    exp.Null: (),
    exp.Offset: ("expression",),
    exp.Order: ("expressions",),
    exp.Ordered: ("this", "desc", "nulls_first"),
    exp.RawString: ("this",),
    exp.RespectNulls: ("this",),
    exp.Select: (
        *("with_", "expressions", "from_", "joins", "where", "group", "having", "distinct", "order", "limit", "offset"),
    ),
    exp.Star: (),
    exp.Subquery: ("this", "alias"),
    exp.Table: ("this", "db", "catalog", "alias"),
    exp.TableAlias: ("this", "columns"),
    exp.Transform: _BINARY,
    exp.TryCast: ("this", "to", "safe", "_type"),
    exp.Tuple: ("expressions",),
    exp.Union: ("this", "expression", "distinct", "with_", "order", "limit", "offset"),
    exp.Var: ("this",),
    exp.Where: ("this",),
    exp.Window: ("this", "partition_by", "order", "spec", "over"),
    exp.WindowSpec: ("kind", "start", "start_side", "end", "end_side"),
    exp.With: ("expressions",),
    exp.WithinGroup: _BINARY,
}
"""The nodes that a query may have, and of each the parts that may be there."""

_SEVERAL_GROUPS = (
    "grouping sets",
    "groups in several ways at once",
    "Write one select with `group by` a way, and union all between them.",
)
_CLOCK = ("clock", "is another value each time", "Give the row a column with the time that is meant.")
_NODES: dict[type[exp.Expr], tuple[str, str, str]] = {
    **dict.fromkeys((exp.Rollup, exp.Cube, exp.GroupingSets), _SEVERAL_GROUPS),
    exp.Lateral: ("lateral", "makes rows of a row", "Make the rows in a `Selected` before the view, and read that."),
    exp.TableSample: ("sample", "takes other rows each time", "Choose rows by their columns, in `where`."),
    exp.Pivot: ("pivot", "is not followed back to its rows", "Write sum(case when ... then ... end) per column."),
    exp.Any: ("any", "compares with all rows of a subquery", "Write exists (select 1 from ... where ...)."),
    exp.All: ("any", "compares with all rows of a subquery", "Write not exists (select 1 from ... where not ...)."),
    exp.Qualify: (
        "qualify",
        "is not SQL of Spark",
        "Compute the window function in a subquery, and filter in `where`.",
    ),
    exp.Concat: (
        "literals",
        "is read by Spark as one text with a quote in it, or as two texts, as a setting says",
        "Write a quote as \\' and join texts by ||.",
    ),
    exp.Placeholder: ("parameter", "is a parameter", "Write the value."),
    exp.Parameter: ("parameter", "is a parameter", "Write the value."),
    exp.Values: ("values", "makes rows of its own", "Put the rows into a table, or into select ... union all ...."),
    **dict.fromkeys((exp.CurrentDate, exp.CurrentTimestamp), _CLOCK),
}
_PARTS: dict[tuple[type[exp.Expr], str], tuple[str, str, str]] = {
    (exp.With, "recursive"): ("recursion", "reads itself", "Write one view a level."),
    (exp.Select, "windows"): ("window name", "names a window", "Write the window out behind each `over`."),
    (exp.Select, "hint"): ("hint", "has a hint, which would not reach the rewritten query", "Leave the hint out."),
    (exp.Select, "laterals"): _NODES[exp.Lateral],
    (exp.Window, "alias"): ("window name", "uses a named window", "Write the window out behind each `over`."),
    (exp.Join, "method"): ("natural join", "joins by whatever names both have", "Write using (...) or on ...."),
    (exp.Table, "joins"): ("nested join", "is a join within a join", "Write the joins one after the other."),
    (exp.Table, "version"): ("version", "reads an old version", "Declare the pinned table in `of`, and name that."),
    (exp.Table, "when"): ("version", "reads an old version", "Declare the pinned table in `of`, and name that."),
    (exp.Table, "sample"): _NODES[exp.TableSample],
    (exp.Select, "qualify"): _NODES[exp.Qualify],
    (exp.Distinct, "on"): ("distinct on", "is not SQL of Spark", "Number the rows by row_number() in a subquery."),
    (exp.Table, "pivots"): _NODES[exp.Pivot],
    (exp.Subquery, "pivots"): _NODES[exp.Pivot],
    **{(exp.Group, name): _SEVERAL_GROUPS for name in ("rollup", "cube", "grouping_sets")},
    **{
        (exp.Subquery, name): ("limit", "stands behind brackets", "Write it within them.")
        for name in ("order", "limit", "offset")
    },
    **{
        (kind, "by_name"): ("by name", "pairs columns by name", "Write the columns of each side in one order.")
        for kind in (exp.Union, exp.Except, exp.Intersect)
    },
}


def parsed(sql: str, deterministic: frozenset[str] = frozenset()) -> exp.Query:
    """The tree of a query, in which every node is one that the rest of the room knows.

    Args:
        sql: One query in Spark's SQL.
        deterministic: More functions that may be called, in lower case.

    Raises:
        BadQuery: it is no query, or has something that is not kept right.
    """
    if not isinstance(sql, str):
        raise BadQuery(f"the query is a {type(sql).__name__}", "write it as text.", reason="type", value=sql)
    with _without_warnings(sql):
        try:
            trees = sqlglot.parse(sql, read=QuerySpark, error_level=ErrorLevel.RAISE)
        except PARSER_ERRORS as error:
            raise _unreadable(sql, error) from error
    tree = trees[0] if len(trees) == 1 else None
    if not isinstance(tree, (exp.Select, exp.SetOperation, exp.Subquery)) or isinstance(tree, exp.Block):
        raise BadQuery("the text is not one query", "Write one `select`.", reason="statement", value=sql)
    for node in tree.walk():
        _check_node(node)
        _check_function(node, deterministic)
    _check_text(sql, tree)
    return tree


def text_of(node: exp.Expr) -> str:
    """The SQL of a node, in Spark's dialect.

    Raises:
        BadQuery: sqlglot cannot write it.
    """
    with _without_warnings("the query"):
        try:
            return node.sql(QuerySpark, normalize_functions=False, unsupported_level=ErrorLevel.RAISE, comments=False)
        except PARSER_ERRORS as error:
            raise _unreadable(repr(node), error) from error


def refuse(reason: str, says: str, way_out: str, node: exp.Expr | None = None) -> NoReturn:
    """Raise `BadQuery` about a node."""
    fragment = None if node is None else _fragment(node)
    where = "" if fragment is None else f"`{fragment}` "
    raise BadQuery(f"{where}{says}", way_out, reason=reason, value=fragment)


def refuse_clock(node: exp.Expr) -> NoReturn:
    """Raise `BadQuery` about a node whose value follows the clock."""
    refuse(*_CLOCK, node)


def name_of_function(node: exp.Expr) -> str:
    """The name of a called function in lower case; "" for what is no call, or a quoted name."""
    return node.this.lower() if isinstance(node, exp.Anonymous) and isinstance(node.this, str) else ""


def is_aggregate(node: exp.Expr) -> bool:
    """True where a node is an aggregate of a group, and not one of a window."""
    name = name_of_function(node)
    if name not in functions.OF_GROUPS and name not in functions.SORTED_ONLY:
        return False
    return not isinstance(_called(node).parent, exp.Window) or _called(node).arg_key != "this"


def _called(node: exp.Expr) -> exp.Expr:
    """The call with what belongs to it: its filter and how it takes nulls."""
    while isinstance(node.parent, (exp.Filter, exp.IgnoreNulls, exp.RespectNulls, exp.WithinGroup)):
        if node.arg_key != "this":
            break
        node = node.parent
    return node


def _check_node(node: exp.Expr) -> None:
    kind = type(node)
    if kind in _NODES:
        refuse(*_NODES[kind], node)
    if kind not in _ARGUMENTS:
        refuse("unknown", f"is a {kind.__name__}, which is not known to be kept right", "Write it otherwise.", node)
    for name, value in node.args.items():
        if value and name not in _ARGUMENTS[kind]:
            reason = _PARTS.get((kind, name))
            if reason:
                refuse(*reason, node)
            refuse("unknown", f"has {name.strip('_')!r}, which is not known to be kept right", "Leave it out.", node)
    if isinstance(node, exp.Interval) and not isinstance(node.this, exp.Literal):
        refuse("interval", "is no interval of a literal length", "Write make_interval(...).", node)
    if isinstance(node, (exp.Limit, exp.Offset)) and not node.expression.is_int:
        refuse("limit", "is no number of rows", "Write a whole number.", node)
    if isinstance(node, exp.Select) and node.args.get("kind"):
        refuse("unknown", "makes a value of its columns", "Write struct(...).", node)
    if isinstance(node, exp.Table) and not isinstance(node.this, exp.Identifier):
        refuse("table function", "is a function that makes rows", "Read a table in its place.", node)


def _check_function(node: exp.Expr, deterministic: frozenset[str]) -> None:
    if not isinstance(node, exp.Anonymous):
        return
    name = name_of_function(node)
    if name in deterministic:
        return
    call = _called(node)
    window = call.parent if isinstance(call.parent, exp.Window) and call.arg_key == "this" else None
    if name in functions.OF_UNITS and len(node.expressions) > 2:
        refuse("unit", "takes a unit", "Add or subtract an interval, or write datediff(end, start).", node)
    if name == "unix_timestamp" and not node.expressions:
        name = "now"
    if name in functions.OF_THE_CLOCK:
        refuse_clock(node)
    if name in functions.OF_CHANCE:
        refuse("chance", "is another value each time", "Compute it of the row, such as xxhash64(id).", node)
    if name in functions.OF_THE_SESSION:
        refuse("session", "depends on who asks, and where", "Write the value.", node)
    if name in functions.MAKES_ROWS:
        refuse("lateral", *_NODES[exp.Lateral][1:], node)
    if name in functions.OF_TIME_WINDOWS:
        refuse("time window", "makes rows of a row", "Group by date_trunc('hour', at), or declare a `Windowed`.", node)
    if name in functions.OF_A_SKETCH:
        refuse("sketch", "depends on the order of the rows", "Write percentile(...), which is exact.", node)
    if name in functions.OF_WINDOWS and window is not None:
        if not window.args.get("order"):
            refuse("order", "depends on the order of the rows, which is not told", "Add an `order by`.", window)
        return
    if name in functions.OF_ANY_ROW:
        way_out = "Say which row is meant, by what no two have: min_by(value, struct(order, id)) or max_by(...)."
        if name in ("listagg", "string_agg"):
            way_out = "Write array_join(sort_array(collect_list(value)), ',')."
        refuse("any row", "gives the value of whatever row comes first", way_out, node)
    if name in functions.OF_WINDOWS:
        refuse("order", "is a function of a window", "Add over (partition by ... order by ...).", node)
    if name in functions.SORTED_ONLY:
        around = call.parent
        if not isinstance(around, exp.Anonymous) or name_of_function(around) not in functions.SORTING:
            refuse("any order", "has the order in which rows come", f"Sort it: sort_array({name}(...)).", node)
        if name_of_function(around) == "array_sort" and len(around.expressions) > 1:
            refuse("any order", "is sorted by a function that may leave ties", f"Write sort_array({name}(...)).", node)
        return
    if name in functions.OF_GROUPS or name in functions.OF_ROWS:
        return
    refuse(
        "function",
        "calls a function of which it is not known that it gives the same each time",
        f"If it does, say so: deterministic=({name or node.name!r},).",
        node,
    )


_COUNTED = frozenset({TokenType.VAR, TokenType.IDENTIFIER, TokenType.NUMBER, TokenType.STRING})


def _check_text(sql: str, tree: exp.Expr) -> None:
    """Refuse a text of which the parser has lost a part, or understands what it has written itself otherwise."""
    again = text_of(tree)
    with _without_warnings(sql):
        try:
            other = sqlglot.parse_one(again, read=QuerySpark, error_level=ErrorLevel.RAISE)
            lost = _words(sql) - _words(again)
        except PARSER_ERRORS as error:
            raise _unreadable(sql, error) from error
    if lost:
        (word, _), *_ = lost.most_common(1)
        refuse("lost", f"cannot be read: {word!r} in it gets lost", "Write that part otherwise.", tree)
    if text_of(other) != again:
        refuse("ambiguous", "can be read in two ways", "Put brackets around its parts.", tree)


def _words(sql: str) -> Counter[str]:
    """The names and literals of a text; the digits behind a point left out, before which a zero may be written."""
    tokens = sqlglot.tokenize(sql, read=QuerySpark)
    return Counter(
        token.text.lower()
        for before, token in zip([None, *tokens], tokens, strict=False)
        if token.token_type in _COUNTED
        and not (before and before.token_type == TokenType.DOT and token.token_type == TokenType.NUMBER)
    )


def _unreadable(sql: str, error: Exception) -> BadQuery:
    errors = getattr(error, "errors", None) or [{}]
    first = errors[0]
    told = first.get("description") or (
        "it is nested too deeply" if isinstance(error, RecursionError) else str(error).partition("\n")[0] or "no SQL"
    )
    place = f" in line {first['line']}, near {first.get('highlight')!r}" if first.get("line") else ""
    return BadQuery(
        f"the query cannot be read: {told.rstrip('.')}{place}.",
        "Write it as Spark SQL.",
        reason="syntax",
        value=first.get("highlight") or sql,
    )


def _fragment(node: exp.Expr) -> str:
    """The SQL of a node for people: quotes stand around odd names alone."""
    plain = node.copy()
    for name in plain.find_all(exp.Identifier):
        name.set("quoted", re.fullmatch(r"[A-Za-z_]\w*", name.name) is None)
    try:
        text = plain.sql(QuerySpark, normalize_functions=False, comments=False)
    except PARSER_ERRORS:
        text = type(node).__name__
    return text if len(text) <= 200 else f"{text[:200]} ..."


class _Warnings(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.thread = threading.get_ident()
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.thread == self.thread:
            self.texts.append(record.getMessage())


@contextmanager
def _without_warnings(sql: str) -> Iterator[None]:
    """Refuse what sqlglot only warns of."""
    handler, logger = _Warnings(), logging.getLogger("sqlglot")
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
    if handler.texts:
        text = handler.texts[0].partition("\n")[0]
        raise BadQuery(
            f"the query cannot be read: {text.rstrip('.')}.", "Write it as Spark SQL.", reason="syntax", value=sql
        )


def history_joins(sql: str) -> tuple[str, dict[int, tuple[str, ...]]]:
    """The text without `for time of ...`, and by the place where a relation's name ends the column that is meant.

    Raises:
        BadQuery: it is cut off.
    """
    try:
        tokens = sqlglot.tokenize(sql, read=QuerySpark)
    except PARSER_ERRORS as error:
        raise _unreadable(sql, error) from error
    text, columns = sql, {}
    for at, token in enumerate(tokens):
        words = [each.text.lower() for each in tokens[at : at + 3]]
        if words != ["for", "time", "of"] or at == 0:
            continue
        path, end = [], at + 3
        while end < len(tokens) and tokens[end].token_type in (TokenType.VAR, TokenType.IDENTIFIER):
            path.append(tokens[end].text)
            end += 1
            if end < len(tokens) and tokens[end].token_type == TokenType.DOT:
                end += 1
            else:
                break
        if not path:
            raise BadQuery(
                "`for time of` is not followed by a column",
                "Write for time of orders.at, or the column of another relation.",
                reason="history",
                value=sql[token.start :][:80],
            )
        columns[tokens[at - 1].end] = tuple(path)
        start, stop = token.start, tokens[end - 1].end + 1
        text = text[:start] + " " * (stop - start) + text[stop:]
    return text, columns

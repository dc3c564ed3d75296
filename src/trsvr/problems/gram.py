"""Sums of outer products of rows, in vector registers: the matrices Σ weight_i x_i x_iᵀ.

They are kept as any M with M + Mᵀ as their sum, so that each kind of row may write where it is quickest. Rows without
many zeros are gathered in a block, and a tile of M stays in registers while the block goes by. Of a row with few
entries, those in consecutive columns (numbers beside categories) are taken together, and others in fours.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, overload
from numpy.typing import NDArray

from trsvr._arrays import Matrix, Vector
from trsvr._compile import kernel
from trsvr._linking import PART

# Numbers in a register (shorter ones are used in pairs), and the tile: eight independent sums, enough for the
# multiply-adds that are under way at once.
LANES = 8
_HIGH, _WIDE = 8, LANES
# Rows in a block, as many as a near cache holds.
_FEWEST, _MOST, _NUMBERS = 8, 64, 16384

_INT32, _INT64 = ir.IntType(32), ir.IntType(64)
_VECTOR = ir.VectorType(ir.DoubleType(), LANES)


def padded(d: int) -> int:
    """Rows and columns of M for d parameters: whole tiles."""
    return -(-d // _WIDE) * _WIDE


def block_rows(d: int) -> int:
    """Rows of the room that `add_dense` and `add_sparse` need beside M: a block, and two for a row's entries."""
    return min(max(_FEWEST, _NUMBERS // padded(d)), _MOST) + 2


# -------------------------------------------------------------------------------------------------- machine code


def _vector_at(builder: Any, memory: Any, place: Any, kind: Any = _VECTOR) -> Any:
    """Where LANES consecutive numbers lie."""
    return builder.bitcast(builder.gep(memory, [place]), kind.as_pointer())


def _in_all_lanes(builder: Any, number: Any) -> Any:
    nothing = ir.Constant(_VECTOR, ir.Undefined)
    first = builder.insert_element(nothing, number, _INT32(0))
    return builder.shuffle_vector(first, nothing, ir.Constant(ir.VectorType(_INT32, LANES), [0] * LANES))


def _multiply_add(builder: Any, *terms: Any) -> Any:
    kind = ir.FunctionType(_VECTOR, [_VECTOR] * 3)
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, f"llvm.fmuladd.v{LANES}f64"), terms)


@intrinsic  # type: ignore[untyped-decorator]  # Numba carries no types
def _add_tile(typing_context: Any, block: Any, count: Any, row: Any, column: Any, share: Any, out: Any) -> Any:
    """As `add_tile`; the count is positive."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        _, count, row, column, share, _ = arguments
        source, target = (context.make_array(signature.args[k])(context, builder, arguments[k]) for k in (0, 5))
        stride, out_stride = (builder.extract_value(array.shape, 1) for array in (source, target))
        tile = [(high, wide) for high in range(_HIGH) for wide in range(0, _WIDE, LANES)]
        before, loop, after = builder.block, builder.append_basic_block("rows"), builder.append_basic_block("end")
        builder.branch(loop)
        builder.position_at_end(loop)
        k, sums = builder.phi(_INT64), [builder.phi(_VECTOR) for _ in tile]
        begin = builder.mul(k, stride)
        left, right = builder.add(begin, row), builder.add(begin, column)
        factors, numbers = {}, {}
        for high in range(_HIGH):
            place = builder.gep(source.data, [builder.add(left, _INT64(high))])
            factors[high] = _in_all_lanes(builder, builder.load(place))
        for wide in range(0, _WIDE, LANES):
            place = _vector_at(builder, source.data, builder.add(right, _INT64(wide)))
            numbers[wide] = builder.load(place, align=8)
        added = []
        for (high, wide), known in zip(tile, sums, strict=True):
            added.append(_multiply_add(builder, factors[high], numbers[wide], known))
            known.add_incoming(ir.Constant(_VECTOR, [0.0] * LANES), before)
            known.add_incoming(added[-1], loop)
        following = builder.add(k, _INT64(1))
        k.add_incoming(_INT64(0), before)
        k.add_incoming(following, loop)
        builder.cbranch(builder.icmp_signed("<", following, count), loop, after)
        builder.position_at_end(after)
        part = _in_all_lanes(builder, share)
        for (high, wide), total in zip(tile, added, strict=True):
            line = builder.mul(builder.add(row, _INT64(high)), out_stride)
            place = _vector_at(builder, target.data, builder.add(builder.add(line, column), _INT64(wide)))
            builder.store(_multiply_add(builder, part, total, builder.load(place, align=8)), place, align=8)
        return context.get_dummy_value()

    whole = types.intp
    return types.void(block, whole, whole, whole, types.float64, out), generate


@intrinsic  # type: ignore[untyped-decorator]  # Numba carries no types
def _add_run(
    typing_context: Any, factor: Any, entries: Any, columns: Any, first: Any, begin: Any, end: Any, out: Any
) -> Any:
    """As `add_run`; the range is not empty, and the columns are unsigned numbers of 32 bits."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        factor, _, _, first, begin, end, _ = arguments
        entries, columns, target = (
            context.make_array(signature.args[k])(context, builder, arguments[k]) for k in (1, 2, 6)
        )
        single = signature.args[1].dtype == types.float32
        stride = builder.extract_value(target.shape, 1)

        def column(place: Any) -> Any:
            return builder.zext(builder.load(builder.gep(columns.data, [place])), _INT64)

        kind = ir.VectorType(ir.FloatType() if single else ir.DoubleType(), LANES)
        run = builder.load(_vector_at(builder, entries.data, first, kind), align=4 if single else 8)
        run = builder.fmul(builder.fpext(run, _VECTOR) if single else run, _in_all_lanes(builder, factor))
        beginning = column(first)
        before, loop, after = builder.block, builder.append_basic_block("entries"), builder.append_basic_block("end")
        builder.branch(loop)
        builder.position_at_end(loop)
        k = builder.phi(_INT64)
        entry = builder.load(builder.gep(entries.data, [k]))
        entry = builder.fpext(entry, ir.DoubleType()) if single else entry
        place = _vector_at(builder, target.data, builder.add(builder.mul(column(k), stride), beginning))
        known = builder.load(place, align=8)
        builder.store(_multiply_add(builder, run, _in_all_lanes(builder, entry), known), place, align=8)
        following = builder.add(k, _INT64(1))
        k.add_incoming(begin, before)
        k.add_incoming(following, loop)
        builder.cbranch(builder.icmp_signed("<", following, end), loop, after)
        builder.position_at_end(after)
        return context.get_dummy_value()

    whole = types.intp
    return types.void(types.float64, entries, columns, whole, whole, whole, out), generate


def add_tile(block: Matrix, count: int, row: int, column: int, share: float, out: Matrix) -> None:
    """Add ``share`` times a tile of blockᵀ·block, from its first ``count`` rows, to ``out`` at that row and column."""
    left, right = block[:count, row : row + _HIGH], block[:count, column : column + _WIDE]
    out[row : row + _HIGH, column : column + _WIDE] += share * (left.T @ right)


@overload(add_tile, strict=False, jit_options=PART)  # type: ignore[untyped-decorator]  # Numba carries no types
def _compiled_add_tile(block: Any, count: Any, row: Any, column: Any, share: Any, out: Any) -> Any:
    return lambda block, count, row, column, share, out: _add_tile(block, count, row, column, share, out)


def add_run(factor: float, entries: Vector, columns: Any, first: int, begin: int, end: int, out: Matrix) -> None:
    """Add ``factor`` times the products of the entries begin … end−1 with the LANES from ``first`` on, to ``out``.

    The latter are of consecutive columns, which are those of ``out``; the former's are its rows.
    """
    place = int(columns[first])
    run = factor * entries[first : first + LANES]
    out[columns[begin:end], place : place + LANES] += np.outer(entries[begin:end], run)


@overload(add_run, strict=False, jit_options=PART)  # type: ignore[untyped-decorator]  # Numba carries no types
def _compiled_add_run(factor: Any, entries: Any, columns: Any, first: Any, begin: Any, end: Any, out: Any) -> Any:
    return lambda factor, entries, columns, first, begin, end, out: _add_run(
        factor, entries, columns, first, begin, end, out
    )


# --------------------------------------------------------------------------------------------------------- kernels


@kernel()
def add_dense(block: Matrix, count: int, out: Matrix) -> None:
    """Add the outer squares of the first ``count`` rows of a block."""
    if count > 0:
        for row in range(0, out.shape[0], _HIGH):
            for column in range(row, out.shape[1], _WIDE):
                # Both halves of a square on the diagonal are there.
                add_tile(block, count, row, column, 0.5 if column == row else 1.0, out)


@kernel()
def add_sparse(entries: NDArray[Any], columns: NDArray[Any], weight: float, intercept: int, out: Matrix) -> None:
    """Add ``weight`` times the outer square of one row; ``intercept`` is the column of a one, or negative."""
    count = entries.size
    first = 0
    while first < count:
        rest = first + 4
        if first + LANES <= count and columns[first + LANES - 1] - columns[first] == LANES - 1:
            rest = first + LANES
            add_run(0.5 * weight, entries, columns, first, first, rest, out)
            if rest < count:
                add_run(weight, entries, columns, first, rest, count, out)
        elif rest <= count:
            a, b, c, d = entries[first], entries[first + 1], entries[first + 2], entries[first + 3]
            p, q, r, s = weight * a, weight * b, weight * c, weight * d
            second, third, fourth = columns[first + 1], columns[first + 2], columns[first + 3]
            one, two, three, four = out[columns[first]], out[second], out[third], out[fourth]
            # Each pair of the four once: to write is what takes the time.
            one[columns[first]] += 0.5 * p * a
            one[second] += p * b
            two[second] += 0.5 * q * b
            one[third] += p * c
            two[third] += q * c
            three[third] += 0.5 * r * c
            one[fourth] += p * d
            two[fourth] += q * d
            three[fourth] += r * d
            four[fourth] += 0.5 * s * d
            for k in range(rest, count):
                column, entry = columns[k], 1.0 * entries[k]
                one[column] += p * entry
                two[column] += q * entry
                three[column] += r * entry
                four[column] += s * entry
        else:
            rest = first + 1
            factor, line = weight * entries[first], out[columns[first]]
            line[columns[first]] += 0.5 * factor * entries[first]
            for k in range(rest, count):
                line[columns[k]] += factor * entries[k]
        first = rest
    if intercept >= 0:
        line = out[intercept]
        for k in range(count):
            line[columns[k]] += weight * entries[k]
        line[intercept] += 0.5 * weight


@kernel()
def folded(half: Matrix, out: Matrix) -> None:
    """Put M + Mᵀ into ``out``, without the padding."""
    for j in range(out.shape[0]):
        for k in range(j + 1):
            out[j, k] = out[k, j] = half[j, k] + half[k, j]

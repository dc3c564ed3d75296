"""Eight dense rows at a time, in vectors of eight numbers: what full passes over dense rows are made of.

The compiler's own vectors suit long rows: of 54 columns it leaves 22 to narrower ones and to single numbers. Here the
last columns are a vector under a mask, weights are read once for four rows, and the sums of eight rows are added up
together. Narrow rows are one vector each, and what is added of them waits in registers. The order of the additions is
fixed, so the bits are.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, overload

from trsvr._linking import PART

#: Rows that are taken together, and numbers in a vector.
LANES = 8
# Of these so many share each weight that is read.
_TOGETHER = 4
_WHOLE, _SHORT = ir.IntType(64), ir.IntType(32)
_NUMBERS, _MASK = ir.VectorType(ir.DoubleType(), LANES), ir.VectorType(ir.IntType(1), LANES)
_ZEROS = ir.Constant(_NUMBERS, [0.0] * LANES)
_FUSED = ("contract",)  # a product and a sum may be one instruction


def eight_dots(values: Any, i: int, w: Any, out: Any, k: int) -> None:
    """Rows i … i+7 times w, in entries k … k+7 of ``out``."""
    out[k : k + LANES] = values[i : i + LANES] @ w[: values.shape[1]]


def add_eight(values: Any, i: int, factors: Any, k: int, out: Any) -> None:
    """Add rows i … i+7, times entries k … k+7 of ``factors``, to ``out``."""
    out[: values.shape[1]] += factors[k : k + LANES] @ values[i : i + LANES]


def narrow_dots(values: Any, i: int, w: Any, out: Any, k: int) -> None:
    """The same as `eight_dots`, for rows of at most LANES columns."""
    eight_dots(values, i, w, out, k)


def add_narrow(values: Any, i: int, count: int, factors: Any, out: Any) -> None:
    """Add as many rows from i on, a multiple of four, times the first entries of ``factors``, to ``out``.

    For rows of at most LANES columns.
    """
    out[: values.shape[1]] += factors[:count] @ values[i : i + count]


class _Code:
    """Builds the instructions of one function."""

    def __init__(self, context: Any, builder: Any) -> None:
        self.context, self.builder = context, builder

    def memory(self, kind: Any, array: Any) -> Any:
        """An array's data and shape."""
        return self.context.make_array(kind)(self.context, self.builder, array)

    def rows(self, memory: Any, i: Any) -> tuple[list[Any], Any]:
        """Where eight rows begin, and how many columns they have."""
        columns = self.builder.extract_value(memory.shape, 1)
        first = self.builder.gep(memory.data, [self.builder.mul(i, columns)])
        places = [self.builder.mul(columns, _WHOLE(r)) for r in range(LANES)]
        return [self.builder.gep(first, [place]) for place in places], columns

    def over_columns(self, columns: Any, many: int, do: Callable[[list[Any], list[Any]], None]) -> None:
        """``do(places, masks)`` for every so many vectors of columns; for the last ones the masks are not None."""
        step = many * LANES
        left = self.builder.and_(columns, _WHOLE(step - 1))
        whole = self.builder.sub(columns, left)

        def places(first: Any) -> list[Any]:
            return [self.builder.add(first, _WHOLE(k * LANES)) for k in range(many)]

        with cgutils.for_range_slice(self.builder, _WHOLE(0), whole, _WHOLE(step)) as (first, _):
            do(places(first), [None] * many)
        with self.builder.if_then(self.builder.icmp_signed("!=", left, _WHOLE(0))):
            do(places(whole), [self.mask(left, k) for k in range(many)])

    def mask(self, count: Any, k: int = 0) -> Any:
        """The lanes of the k-th vector that belong to so many numbers."""
        numbers = ir.VectorType(_WHOLE, LANES)
        lanes = ir.Constant(numbers, list(range(k * LANES, (k + 1) * LANES)))
        return self.builder.icmp_signed("<", lanes, self.splat(count, numbers))

    def splat(self, number: Any, kind: Any = _NUMBERS) -> Any:
        """The same number in every lane."""
        one = self.builder.insert_element(ir.Constant(kind, ir.Undefined), number, _SHORT(0))
        return self.shuffle(one, one, [0] * LANES)

    def shuffle(self, a: Any, b: Any, lanes: list[int]) -> Any:
        """Lanes of two vectors; those of the second are counted from eight."""
        return self.builder.shuffle_vector(a, b, ir.Constant(ir.VectorType(_SHORT, LANES), lanes))

    def _masked(self, name: str, vector: Any, result: Any, kinds: list[Any], pointer: Any) -> Any:
        number = "f32" if vector.element == ir.FloatType() else "f64"
        opaque = getattr(pointer.type, "is_opaque", False)  # llvmlite of Numba 0.61 types its pointers
        place = "p0" if opaque else f"p0v{LANES}{number}"
        full = f"llvm.masked.{name}.v{LANES}{number}.{place}"
        return cgutils.get_or_insert_function(self.builder.module, ir.FunctionType(result, kinds), full)

    def load(self, data: Any, place: Any, mask: Any) -> Any:
        """Eight numbers, as doubles; zeros where the mask is not set."""
        begin = self.builder.gep(data, [place])
        single = begin.type.pointee == ir.FloatType()
        vector = ir.VectorType(ir.FloatType() if single else ir.DoubleType(), LANES)
        pointer, size = self.builder.bitcast(begin, vector.as_pointer()), 4 if single else 8
        if mask is None:
            found = self.builder.load(pointer, align=size)
        else:
            zeros = ir.Constant(vector, [0.0] * LANES)
            masked = self._masked("load", vector, vector, [pointer.type, _SHORT, _MASK, vector], pointer)
            found = self.builder.call(masked, [pointer, _SHORT(size), mask, zeros])
        return self.builder.fpext(found, _NUMBERS) if single else found

    def store(self, numbers: Any, data: Any, place: Any, mask: Any = None) -> None:
        """Eight doubles."""
        pointer = self.builder.bitcast(self.builder.gep(data, [place]), _NUMBERS.as_pointer())
        if mask is None:
            self.builder.store(numbers, pointer, align=8)
            return
        masked = self._masked("store", _NUMBERS, ir.VoidType(), [_NUMBERS, pointer.type, _SHORT, _MASK], pointer)
        self.builder.call(masked, [numbers, pointer, _SHORT(8), mask])

    def add_product(self, a: Any, b: Any, total: Any) -> Any:
        """Their product, added to ``total``."""
        return self.builder.fadd(total, self.builder.fmul(a, b, flags=_FUSED), flags=_FUSED)

    def sums(self, vectors: list[Any]) -> Any:
        """The sum of the lanes of each of eight vectors, in one: halves change places and are added, three times."""
        for width in (1, 2, 4):
            first = [lane if lane & width == 0 else lane - width + LANES for lane in range(LANES)]
            second = [lane + width for lane in first]
            pairs = zip(vectors[::2], vectors[1::2], strict=True)
            vectors = [self.builder.fadd(self.shuffle(a, b, first), self.shuffle(a, b, second)) for a, b in pairs]
        return vectors[0]


@intrinsic  # type: ignore[untyped-decorator]  # Numba carries no types
def _eight_dots(typing_context: Any, values: Any, i: Any, w: Any, out: Any, k: Any) -> Any:
    """Four rows at a time: weights are read once for them, and memory nearly in order comes before it is asked for."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        code, kinds = _Code(context, builder), signature.args
        memory = code.memory(kinds[0], arguments[0])
        columns = builder.extract_value(memory.shape, 1)
        weights, to = code.memory(kinds[2], arguments[2]).data, code.memory(kinds[3], arguments[3]).data
        sums = cgutils.alloca_once(builder, _NUMBERS, LANES)
        halves = [[cgutils.alloca_once(builder, _NUMBERS) for _ in range(2)] for _ in range(_TOGETHER)]
        with cgutils.for_range_slice(builder, _WHOLE(0), _WHOLE(LANES), _WHOLE(_TOGETHER)) as (begin, _):
            first = builder.gep(memory.data, [builder.mul(builder.add(arguments[1], begin), columns)])
            rows = [builder.gep(first, [builder.mul(columns, _WHOLE(r))]) for r in range(_TOGETHER)]
            for half in itertools.chain(*halves):
                builder.store(_ZEROS, half)

            def do(places: list[Any], masks: list[Any]) -> None:
                for k, (place, mask) in enumerate(zip(places, masks, strict=True)):
                    weight = code.load(weights, place, mask)
                    for row, half in zip(rows, halves, strict=True):
                        total = code.add_product(code.load(row, place, mask), weight, builder.load(half[k]))
                        builder.store(total, half[k])

            code.over_columns(columns, 2, do)
            for r, half in enumerate(halves):
                total = builder.fadd(*map(builder.load, half))
                builder.store(total, builder.gep(sums, [builder.add(begin, _WHOLE(r))]))
        vectors = [builder.load(builder.gep(sums, [_WHOLE(r)])) for r in range(LANES)]
        code.store(code.sums(vectors), to, arguments[4])
        return context.get_dummy_value()

    return types.void(values, types.intp, w, out, types.intp), generate


@intrinsic  # type: ignore[untyped-decorator]  # Numba carries no types
def _add_eight(typing_context: Any, values: Any, i: Any, factors: Any, k: Any, out: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        code, kinds = _Code(context, builder), signature.args
        rows, columns = code.rows(code.memory(kinds[0], arguments[0]), arguments[1])
        data, to = code.memory(kinds[2], arguments[2]).data, code.memory(kinds[4], arguments[4]).data
        numbers = [builder.add(arguments[3], _WHOLE(r)) for r in range(LANES)]
        factors = [code.splat(builder.load(builder.gep(data, [number]))) for number in numbers]

        def do(places: list[Any], masks: list[Any]) -> None:
            (place,), (mask,) = places, masks
            halves = [code.load(to, place, mask), _ZEROS]  # two shorter sums: each addition waits for the one before
            for r, row in enumerate(rows):
                halves[r % 2] = code.add_product(code.load(row, place, mask), factors[r], halves[r % 2])
            code.store(builder.fadd(*halves), to, place, mask)

        code.over_columns(columns, 1, do)
        return context.get_dummy_value()

    return types.void(values, types.intp, factors, types.intp, out), generate


@intrinsic  # type: ignore[untyped-decorator]  # Numba carries no types
def _narrow_dots(typing_context: Any, values: Any, i: Any, w: Any, out: Any, k: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        code, kinds = _Code(context, builder), signature.args
        rows, columns = code.rows(code.memory(kinds[0], arguments[0]), arguments[1])
        mask, first = code.mask(columns), _WHOLE(0)
        weights = code.load(code.memory(kinds[2], arguments[2]).data, first, mask)
        products = [builder.fmul(code.load(row, first, mask), weights, flags=_FUSED) for row in rows]
        code.store(code.sums(products), code.memory(kinds[3], arguments[3]).data, arguments[4])
        return context.get_dummy_value()

    return types.void(values, types.intp, w, out, types.intp), generate


@intrinsic  # type: ignore[untyped-decorator]  # Numba carries no types
def _add_narrow(typing_context: Any, values: Any, i: Any, count: Any, factors: Any, out: Any) -> Any:
    """Four sums, that none waits for the one before."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        code, kinds = _Code(context, builder), signature.args
        memory, data = code.memory(kinds[0], arguments[0]), code.memory(kinds[3], arguments[3]).data
        columns, first = builder.extract_value(memory.shape, 1), _WHOLE(0)
        mask, to = code.mask(columns), code.memory(kinds[4], arguments[4]).data
        sums = [cgutils.alloca_once_value(builder, _ZEROS) for _ in range(4)]
        with cgutils.for_range_slice(builder, first, arguments[2], _WHOLE(4)) as (begin, _):
            for k, total in enumerate(sums):
                number = builder.add(begin, _WHOLE(k))
                row = builder.gep(memory.data, [builder.mul(builder.add(arguments[1], number), columns)])
                factor = code.splat(builder.load(builder.gep(data, [number])))
                builder.store(code.add_product(code.load(row, first, mask), factor, builder.load(total)), total)
        a, b, c, d = (builder.load(total) for total in sums)
        added = builder.fadd(builder.fadd(a, b), builder.fadd(c, d))
        code.store(builder.fadd(code.load(to, first, mask), added), to, first, mask)
        return context.get_dummy_value()

    return types.void(values, types.intp, types.intp, factors, out), generate


@overload(eight_dots, strict=False, jit_options=PART)  # type: ignore[untyped-decorator]  # Numba carries no types
def _compiled_eight_dots(values: Any, i: Any, w: Any, out: Any, k: Any) -> Any:
    return lambda values, i, w, out, k: _eight_dots(values, i, w, out, k)


@overload(add_eight, strict=False, jit_options=PART)  # type: ignore[untyped-decorator]  # Numba carries no types
def _compiled_add_eight(values: Any, i: Any, factors: Any, k: Any, out: Any) -> Any:
    return lambda values, i, factors, k, out: _add_eight(values, i, factors, k, out)


@overload(narrow_dots, strict=False, jit_options=PART)  # type: ignore[untyped-decorator]  # Numba carries no types
def _compiled_narrow_dots(values: Any, i: Any, w: Any, out: Any, k: Any) -> Any:
    return lambda values, i, w, out, k: _narrow_dots(values, i, w, out, k)


@overload(add_narrow, strict=False, jit_options=PART)  # type: ignore[untyped-decorator]  # Numba carries no types
def _compiled_add_narrow(values: Any, i: Any, count: Any, factors: Any, out: Any) -> Any:
    return lambda values, i, count, factors, out: _add_narrow(values, i, count, factors, out)

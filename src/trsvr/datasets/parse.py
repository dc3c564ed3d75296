"""The inner loop of the LIBSVM reader: lines of text to numbers, compiled.

A line is ``label index:value index:value …``; blank lines are skipped and ``#`` begins a comment. Decimal numbers
become the nearest float64:

- up to 2**53 in digits and 10**±22 in exponent, one exact multiplication or division (Clinger 1990);
- otherwise a 128-bit product with a table of powers of five (Lemire, "Number parsing at a gigabyte per second",
  2021), which decides all but rare cases;
- the rest (more than 19 digits, extreme exponents, undecided) is noted down for Python's own ``float``.

The kernel allocates nothing. It writes into the caller's buffers and stops before the line for which they are too
small. Everything it calls stands in this file, because Numba notices edits only in the file of the kernel itself.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trsvr._compile import jitable, kernel

# What became of a piece of text.
DONE = 0
FULL = 1
BAD_LABEL = 2
LABEL_NOT_FINITE = 3
NOT_A_PAIR = 4
QUERY_ID = 5
INDEX_TOO_LARGE = 6
INDEX_TOO_SMALL = 7
INDEX_REPEATED = 8
INDEX_DESCENDING = 9
INDEX_OUTSIDE = 10
BAD_VALUE = 11
VALUE_NOT_FINITE = 12

# Places in the kernel's report.
POSITION, LINES, ROWS, ENTRIES, HARD, TOKEN, INDEX = range(7)
REPORT_SIZE = 7

MAX_INDEX = 2**31 - 1

# What `_number` says.
_EXACT, _HARD, _MALFORMED, _NOT_FINITE = range(4)

_SMALLEST_POWER, _LARGEST_POWER = -290, 280
_TENS = np.array([10.0**k for k in range(23)])


def _powers_of_five() -> NDArray[np.uint64]:
    """Leading 128 bits of 5**q as two words; rounded up for q < 0, down for q >= 0, as the method requires."""
    words = np.empty((_LARGEST_POWER - _SMALLEST_POWER + 1, 2), dtype=np.uint64)
    for q in range(_SMALLEST_POWER, _LARGEST_POWER + 1):
        power = 5 ** abs(q)
        if q < 0:
            bits = (power - 1).bit_length()
            leading = (1 << (bits + 127 if q >= -27 else 2 * bits + 128)) // power + 1
        else:
            leading = power << max(0, 128 - power.bit_length())
        leading >>= max(0, leading.bit_length() - 128)
        words[q - _SMALLEST_POWER] = leading >> 64, leading & (2**64 - 1)
    return words


_FIVES = _powers_of_five()

# Numba turns a mixture of signed and unsigned words into floats, so every constant of this arithmetic is unsigned.
_U0, _U1, _U3, _U9, _U10 = np.uint64(0), np.uint64(1), np.uint64(3), np.uint64(9), np.uint64(10)
_U32, _U63 = np.uint64(32), np.uint64(63)
_LOW_HALF = np.uint64(2**32 - 1)
_LOW_NINE = np.uint64(2**9 - 1)
_ALL_ONES = np.uint64(2**64 - 1)
_EXACT_LIMIT = np.uint64(2**53)
_TOP_BIT = np.uint64(2**63)


@jitable
def _at(text: Any, p: int) -> Any:
    """The byte at p; as an unsigned index it need not be tested for counting from the end."""
    return text[np.uint64(p)]


@jitable
def _product(a: Any, b: Any) -> Any:
    """High and low word of a·b."""
    a_high, a_low = a >> _U32, a & _LOW_HALF
    b_high, b_low = b >> _U32, b & _LOW_HALF
    low = a_low * b_low
    cross = a_high * b_low
    middle = (low >> _U32) + (cross & _LOW_HALF) + a_low * b_high
    return a_high * b_high + (cross >> _U32) + (middle >> _U32), (middle << _U32) | (low & _LOW_HALF)


@jitable
def _scaled(digits: Any, power: int) -> Any:
    """Whether digits·10**power was decided, and the nearest float64; digits > 0, power within the table."""
    shift = 0
    while digits < _TOP_BIT:
        digits = digits << _U1
        shift += 1
    row = power - _SMALLEST_POWER
    high, low = _product(digits, _FIVES[row, 0])
    if high & _LOW_NINE == _LOW_NINE:
        # The bits below those that are kept are all ones: a carry from the second word may reach them.
        carry, _ = _product(digits, _FIVES[row, 1])
        low += carry
        if carry > low:
            high += _U1
    if low == _ALL_ONES and (power < -27 or power > 55):
        return False, 0.0
    upper = high >> _U63
    dropped = upper + _U9
    mantissa = high >> dropped
    if low <= _U1 and -4 <= power <= 23 and mantissa & _U3 == _U1 and (mantissa << dropped) == high:
        mantissa -= _U1  # exactly half-way: to even
    mantissa = (mantissa + (mantissa & _U1)) >> _U1
    # floor(power·log2(10)) by a multiplication and a shift; arithmetic on signed words from here on
    exponent = ((217706 * power) >> 16) + 63 + int(upper) - shift - 52
    return True, math.ldexp(np.float64(mantissa), exponent)


@jitable
def _digits(text: Any, p: int, digits: Any, significant: int) -> Any:
    """Read digits at p, behind others: where they end, the first 19 significant ones as a number, how many there are.

    Then how many of those at p the number has taken in, and how many it has not.
    """
    taken = 0
    dropped = 0
    while True:
        digit = np.uint64(_at(text, p)) - np.uint64(48)  # below "0" this wraps around to a large number
        if digit > _U9:
            return p, digits, significant, taken, dropped
        p += 1
        if significant < 19:
            digits = digits * _U10 + digit
            taken += 1
            if digits != _U0:
                significant += 1
        else:
            significant += 1
            dropped += 1


@jitable
def _number(text: Any, p: int) -> Any:
    """Read a decimal number at p: where it ends, what it is, its value. The text ends with a newline."""
    negative = _at(text, p) == 45
    if negative or _at(text, p) == 43:
        p += 1
    p, digits, significant, taken, exponent = _digits(text, p, _U0, 0)
    seen = taken + exponent
    if _at(text, p) == 46:
        p, digits, significant, taken, dropped = _digits(text, p + 1, digits, significant)
        seen += taken + dropped
        exponent -= taken
    if seen == 0:
        first = _at(text, p) | 32
        if first == 105 or first == 110:  # i(nf), n(an)
            return p, _NOT_FINITE, 0.0
        return p, _MALFORMED, 0.0
    if _at(text, p) | 32 == 101:
        p += 1
        downwards = _at(text, p) == 45
        if downwards or _at(text, p) == 43:
            p += 1
        written = 0
        seen = 0
        while 48 <= _at(text, p) <= 57:
            if written < 100000:
                written = written * 10 + int(_at(text, p)) - 48
            seen += 1
            p += 1
        if seen == 0:
            return p, _MALFORMED, 0.0
        exponent += -written if downwards else written
    if digits == _U0:
        return p, _EXACT, 0.0
    if significant > 19:
        return p, _HARD, 1.0
    if digits <= _EXACT_LIMIT and -22 <= exponent <= 22:
        value = np.float64(digits)
        if exponent < 0:
            value /= _TENS[-exponent]
        else:
            value *= _TENS[exponent]
    elif _SMALLEST_POWER <= exponent <= _LARGEST_POWER:
        decided, value = _scaled(digits, exponent)
        if not decided:
            return p, _HARD, 1.0
    else:
        return p, _HARD, 1.0
    return p, _EXACT, -value if negative else value


@jitable
def _is_gap(character: int) -> bool:
    """Whether a token ends here: space, tab, either kind of line end, or a comment."""
    return character == 32 or character == 10 or character == 9 or character == 13 or character == 35


@kernel()
def parse_lines(
    text: NDArray[np.uint8],
    start: int,
    stop: int,
    first_index: int,
    n_columns: int,
    columns: NDArray[np.int32],
    values: NDArray[np.float64],
    labels: NDArray[np.float64],
    row_ends: NDArray[np.int64],
    hard: NDArray[np.int64],
    report: NDArray[np.int64],
) -> int:
    """Read the lines of ``text[start:stop]``, which ends with a newline.

    Rows go to ``labels`` and ``row_ends``, entries other than zero to ``columns`` and ``values``, the places of numbers
    for Python to read to ``hard``: (entry, or −1 − row for a label; begin; end). ``report`` receives how far it came
    and, after an error, where the token begins. Returns what became of the text.
    """
    p = start
    lines = 0
    rows = 0
    entries = 0
    hards = 0
    result = DONE
    token = start
    index = 0
    while p < stop:
        line_start, entries_before, hards_before = p, entries, hards
        while _at(text, p) == 32 or _at(text, p) == 9 or _at(text, p) == 13:
            p += 1
        if _at(text, p) != 10 and _at(text, p) != 35:
            if rows == labels.size:
                result = FULL
            else:
                token = p
                p, kind, value = _number(text, p)
                if kind == _NOT_FINITE:
                    result = LABEL_NOT_FINITE
                elif kind == _MALFORMED or not _is_gap(_at(text, p)):
                    result = BAD_LABEL
                else:
                    if kind == _HARD:
                        if hards == hard.shape[0]:
                            result = FULL
                        else:
                            hard[hards, 0], hard[hards, 1], hard[hards, 2] = -1 - rows, token, p
                            hards += 1
                    labels[rows] = value
            previous = -1
            while result == DONE:
                while _at(text, p) == 32 or _at(text, p) == 9 or _at(text, p) == 13:
                    p += 1
                if _at(text, p) == 10 or _at(text, p) == 35:
                    break
                token = p
                index = 0
                while 48 <= _at(text, p) <= 57 and index <= MAX_INDEX:
                    index = index * 10 + int(_at(text, p)) - 48
                    p += 1
                if index > MAX_INDEX:
                    result = INDEX_TOO_LARGE
                elif p == token or _at(text, p) != 58:
                    result = QUERY_ID if _at(text, token) == 113 and text[token + 1] == 105 else NOT_A_PAIR
                elif index < first_index:
                    result = INDEX_TOO_SMALL
                elif index == previous:
                    result = INDEX_REPEATED
                elif index < previous:
                    result = INDEX_DESCENDING
                elif index - first_index >= n_columns:
                    result = INDEX_OUTSIDE
                if result != DONE:
                    break
                previous = index
                begin = p + 1
                p, kind, value = _number(text, begin)
                if kind == _NOT_FINITE:
                    result = VALUE_NOT_FINITE
                elif kind == _MALFORMED or not _is_gap(_at(text, p)):
                    result = BAD_VALUE
                elif value != 0.0:
                    if entries == columns.size:
                        result = FULL
                        break
                    if kind == _HARD:
                        if hards == hard.shape[0]:
                            result = FULL
                            break
                        hard[hards, 0], hard[hards, 1], hard[hards, 2] = entries, begin, p
                        hards += 1
                    columns[entries] = index - first_index
                    values[entries] = value
                    entries += 1
            if result == FULL:
                p, entries, hards = line_start, entries_before, hards_before
            if result != DONE:
                break
            row_ends[rows] = entries
            rows += 1
        while _at(text, p) != 10:
            p += 1
        p += 1
        lines += 1
    report[POSITION] = p
    report[LINES] = lines
    report[ROWS] = rows
    report[ENTRIES] = entries
    report[HARD] = hards
    report[TOKEN] = token
    report[INDEX] = index
    return result

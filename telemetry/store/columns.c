/* Columns of numbers to the blocks of a chunk and back, for telemetry.store.native: plain C, no Python.
 *
 * The form of a block is told in telemetry.store.format, and how numbers are chosen in telemetry.store.encoder, which
 * does the same in more time. Tables are [columns, rows]. The caller has checked the sizes of what it passes; what bytes
 * that were read say is checked here. Sums and differences are modulo 2**64.
 *
 * No option of the compiler may let it round otherwise than IEEE 754 says: -ffp-contract=off, and no -ffast-math.
 */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define BITS 16 /* higher kinds are bits of floats */
#define HEAD 18 /* bytes of a column */
enum { WIDTH = 0x0F, DIFFERENCES = 0x10, HOLES = 0x20, REFERENCE = 0x40 };

/* Where the processor has wider registers, they are used; there is one library for all. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && defined(__linux__)
#define WIDE __attribute__((target_clones("avx2", "default")))
#else
#define WIDE
#endif

static const double MAGIC = 6755399441055744.0; /* 1.5 * 2**52: adding it rounds to an integer, half to even */
static const double SMALL = 2251799813685248.0; /* 2**51, up to which that is so */
static const double EXACT = 9007199254740992.0; /* 2**53 */
static const double FACTORS[BITS] = {1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15};

static int64_t bits_of(double value)
{
    int64_t bits;
    memcpy(&bits, &value, 8);
    return bits;
}

/* Return the whole number next to a value; the least of all where it is beyond 64 bits, or NaN. */
static int64_t nearest(double value)
{
    if (fabs(value) < SMALL)
        return bits_of(value + MAGIC) - bits_of(MAGIC);
    return value > -0x1p63 && value < 0x1p63 ? (int64_t)rint(value) : INT64_MIN;
}

static int64_t step(const int64_t *whole, int64_t row)
{
    return (int64_t)((uint64_t)whole[row] - (uint64_t)whole[row - 1]);
}

/* Return a reading as it is stored, and count it in `bad`: what is no number, and a counter below zero. */
static double cleaned(double value, int is_counter, int64_t times, int64_t *bad)
{
    int is_finite = value - value == 0.0, is_negative = is_finite && is_counter && value < 0;
    if (is_finite && !is_negative)
        return value + 0.0; /* -0.0 becomes 0.0 */
    bad[is_negative] += times;
    return NAN;
}

/* Turn rows, [rows, columns], into columns in another order. Returns how many of them change; `values` has those. */
WIDE int64_t fw_columns(int64_t rows, int64_t columns, const double *table, const int64_t *order, const uint8_t *counters,
                   uint64_t *changes, double *fixed, int64_t *moving, double *values, int64_t *bad)
{
    int64_t count = 0;
    memset(changes, 0, (size_t)columns * 8);
    for (int64_t row = 1; row < rows; row++)
        for (int64_t column = 0; column < columns; column++)
            changes[column] |= (uint64_t)(bits_of(table[row * columns + column]) ^ bits_of(table[column]));
    for (int64_t place = 0; place < columns; place++) {
        const double *own = table + order[place];
        int moves = changes[order[place]] != 0;
        fixed[place] = cleaned(*own, counters[place], moves ? 0 : rows, bad);
        if (!moves)
            continue;
        moving[count++] = place;
        for (int64_t row = 0; row < rows; row++, own += columns)
            *values++ = cleaned(*own, counters[place], 1, bad);
    }
    return count;
}

/* Return whether all values are integers over a factor, and write these. */
static WIDE int are_decimals(const double *values, int64_t rows, double factor, int64_t *whole)
{
    int64_t other = 0, large = 0;
    for (int64_t row = 0; row < rows; row++) {
        double scaled = values[row] * factor, rounded = (scaled + MAGIC) - MAGIC;
        whole[row] = (int64_t)((uint64_t)bits_of(scaled + MAGIC) - (uint64_t)bits_of(MAGIC));
        other |= bits_of((rounded + 0.0) / factor) ^ bits_of(values[row]);
        large |= !(fabs(scaled) < SMALL);
    }
    if (!large)
        return !other;
    for (int64_t row = 0; row < rows; row++) {
        double scaled = values[row] * factor;
        whole[row] = nearest(scaled);
        if (!(scaled >= -0x1p63 && scaled < 0x1p63) || bits_of((double)whole[row] / factor) != bits_of(values[row]))
            return 0;
    }
    return 1;
}

/* Write values as integers, and return their kind, which is `kind` or a later one. */
static uint8_t to_integers(const double *values, int64_t rows, int64_t kind, int64_t scales, int64_t *whole)
{
    uint64_t any = 0;
    int shift = 0;
    for (; kind < scales; kind++)
        if (are_decimals(values, rows, FACTORS[kind], whole))
            return (uint8_t)kind;
    for (int64_t row = 0; row < rows; row++)
        any |= (uint64_t)bits_of(values[row]);
    while (shift < 63 && any && !(any >> shift & 1))
        shift++;
    for (int64_t row = 0; row < rows; row++)
        whole[row] = bits_of(values[row]) >> shift;
    return (uint8_t)(BITS + shift);
}

static uint8_t places_of(double value, int64_t scales)
{
    int64_t whole, kind = 0;
    while (kind < scales && !are_decimals(&value, 1, FACTORS[kind], &whole))
        kind++;
    return (uint8_t)kind;
}

/* Fill each hole with the value before it, or else the first one; write where holes are. Returns whether there are any. */
static int fill_holes(double *values, int64_t rows, uint8_t *bits)
{
    int64_t first = 0;
    int any = 0;
    for (int64_t row = 0; row < rows; row++)
        any |= isnan(values[row]);
    if (!any)
        return 0;
    memset(bits, 0, (size_t)(rows + 7) / 8);
    while (first < rows && isnan(values[first]))
        first++;
    for (int64_t row = 0; row < rows; row++)
        if (isnan(values[row])) {
            bits[row / 8] |= (uint8_t)(1 << row % 8);
            values[row] = first == rows ? 0.0 : row < first ? values[first] : values[row - 1];
        }
    return 1;
}

typedef struct {
    int64_t *whole; /* of one that changes, else 0 */
    uint8_t *holes; /* of one that lacks values, else 0 */
    int64_t first, least, least_step, most_step, other;
    double factor;
    uint8_t kind, packing;
} Column;

static WIDE void bounds_of_steps(Column *column, int64_t rows, const int64_t *other, double factor)
{
    int64_t least = INT64_MAX, most = INT64_MIN;
    for (int64_t row = 1; row < rows; row++) {
        int64_t one = step(column->whole, row);
        if (other)
            one = (int64_t)((uint64_t)one - (uint64_t)nearest((double)step(other, row) * factor));
        least = one < least ? one : least;
        most = one > most ? one : most;
    }
    column->least_step = least;
    column->most_step = most;
}

static double largest_step(const Column *column)
{
    return fmax(fabs((double)column->least_step), fabs((double)column->most_step));
}

static int may_follow(const Column *column, double least_range)
{
    return column->whole && !column->holes && column->kind < BITS && largest_step(column) < EXACT / 2 &&
           (double)column->most_step - (double)column->least_step > least_range;
}

/* Tell a column from another one, where that leaves little of its differences. Returns whether it does. */
static WIDE int follow(Column *own, const Column *other, int64_t rows, double most_unexplained)
{
    double mean = 0, other_mean = 0, products = 0, squares = 0, own_squares = 0, slope;
    for (int64_t row = 1; row < rows; row++) {
        mean += (double)step(own->whole, row);
        other_mean += (double)step(other->whole, row);
    }
    mean /= (double)(rows - 1);
    other_mean /= (double)(rows - 1);
    for (int64_t row = 1; row < rows; row++) {
        double moved = (double)step(own->whole, row) - mean, told_by = (double)step(other->whole, row) - other_mean;
        products += moved * told_by;
        squares += told_by * told_by;
        own_squares += moved * moved;
    }
    slope = products / squares;
    if (!(slope * slope * squares / own_squares > 1 - most_unexplained) || !(largest_step(other) * fabs(slope) < EXACT))
        return 0;
    own->factor = slope;
    return 1;
}

static uint8_t width_of(uint64_t range)
{
    uint8_t width = 0;
    while (width < 8 && range >> 8 * width)
        width++;
    return width;
}

/* Decide how a column that changes is stored: its numbers, or its differences where these have the smaller range. */
static WIDE void choose(Column *column, int64_t rows, int is_told)
{
    int64_t least = INT64_MAX, most = INT64_MIN;
    uint64_t range, range_of_steps = (uint64_t)column->most_step - (uint64_t)column->least_step;
    for (int64_t row = 0; row < rows; row++) {
        least = column->whole[row] < least ? column->whole[row] : least;
        most = column->whole[row] > most ? column->whole[row] : most;
    }
    range = (uint64_t)most - (uint64_t)least;
    column->least = least;
    if (is_told || range_of_steps < range) {
        range = range_of_steps;
        column->packing |= DIFFERENCES | (is_told ? REFERENCE : 0);
        column->first = column->whole[0];
        column->least = column->least_step;
    }
    column->packing |= width_of(range);
}

static WIDE void numbers_of(const Column *column, const Column *columns, int64_t rows, uint64_t *over)
{
    if (!(column->packing & DIFFERENCES)) {
        for (int64_t row = 0; row < rows; row++)
            over[row] = (uint64_t)column->whole[row] - (uint64_t)column->least;
        return;
    }
    over[0] = 0;
    for (int64_t row = 1; row < rows; row++)
        over[row] = (uint64_t)step(column->whole, row) - (uint64_t)column->least;
    if (column->packing & REFERENCE)
        for (int64_t row = 1; row < rows; row++)
            over[row] -= (uint64_t)nearest((double)step(columns[column->other].whole, row) * column->factor);
}

static uint8_t *put(uint8_t *to, const void *from, int64_t size)
{
    memcpy(to, from, (size_t)size);
    return to + size;
}

/* Write the block of columns [begin, end), and return where it ends. */
static WIDE uint8_t *write_block(const Column *columns, int64_t begin, int64_t end, int64_t rows, uint64_t *over, uint8_t *to)
{
    int64_t count = end - begin, of_width[9] = {0};
    for (int64_t column = begin; column < end; column++, to++) {
        to[0] = columns[column].kind;
        to[count] = columns[column].packing;
        for (int64_t plane = 0; plane < 8; plane++) {
            to[count * (2 + plane)] = (uint8_t)((uint64_t)columns[column].first >> 8 * plane);
            to[count * (10 + plane)] = (uint8_t)((uint64_t)columns[column].least >> 8 * plane);
        }
        of_width[columns[column].packing & WIDTH]++;
    }
    to += count * (HEAD - 1);
    for (int64_t column = begin; column < end; column++)
        if (columns[column].holes)
            to = put(to, columns[column].holes, (rows + 7) / 8);
    for (int64_t column = begin; column < end; column++)
        if (columns[column].packing & REFERENCE) {
            uint16_t other = (uint16_t)(columns[column].other - begin);
            to = put(to, &other, 2);
        }
    for (int64_t column = begin; column < end; column++)
        if (columns[column].packing & REFERENCE)
            to = put(to, &columns[column].factor, 8);
    for (int64_t width = 1; width <= 8; width++) {
        int64_t place = 0, stride = of_width[width] * rows;
        for (int64_t column = begin; stride && column < end; column++) {
            if ((columns[column].packing & WIDTH) != width)
                continue;
            numbers_of(columns + column, columns, rows, over);
            for (int64_t plane = 0; plane < width; plane++)
                for (int64_t row = 0; row < rows; row++)
                    to[plane * stride + place + row] = (uint8_t)(over[row] >> 8 * plane);
            place += rows;
        }
        to += stride * width;
    }
    return to;
}

/* Write the blocks of a chunk, that of its times first, and where each ends. Columns that change are `moving`, whose
 * holes are filled in `values`. `pairs` are columns that may be told from others, ascending, the times counted among
 * them: [2, pairs]. Returns how many are; -1 without memory. `shape`: rows, kinds of times, columns, moving ones, columns
 * a block, decimal places that are tried, pairs. `limits`: least range of differences, most of them unexplained. */
int64_t fw_pack(const int64_t *shape, const double *limits, const int64_t *times, const double *fixed, const int64_t *moving,
                double *values, const int64_t *pairs, uint8_t *blocks, int64_t *ends)
{
    const int64_t rows = shape[0], kinds = shape[1], total = kinds + shape[2], moves = shape[3], count = shape[6];
    int64_t told = 0, place = 0, size = (rows + 7) / 8;
    Column *columns = calloc((size_t)total, sizeof(Column));
    int64_t *whole = malloc((size_t)((kinds + moves + 1) * rows) * 8);
    uint8_t *bits = malloc((size_t)(total * size + 1)), *to = blocks;
    if (!columns || !whole || !bits) {
        told = -1;
        goto end;
    }
    for (int64_t number = 0; number < kinds; number++) {
        Column *column = columns + number;
        column->least = times[number * rows];
        for (int64_t row = 1; row < rows && !column->whole; row++)
            if (times[number * rows + row] != column->least)
                column->whole = memcpy(whole + number * rows, times + number * rows, (size_t)rows * 8);
    }
    for (int64_t number = kinds; number < total; number++) {
        Column *column = columns + number;
        int is_moving = place < moves && moving[place] == number - kinds;
        double first = fixed[number - kinds];
        if (isnan(first)) {
            first = 0.0;
            if (!is_moving) {
                column->holes = bits + number * size;
                for (int64_t row = 0; row < size; row++)
                    column->holes[row] = row < rows / 8 ? 0xFF : (uint8_t)((1 << rows % 8) - 1);
            }
        }
        if (!is_moving) {
            column->kind = to_integers(&first, 1, 0, shape[5], &column->least);
        } else {
            column->whole = whole + (kinds + place) * rows;
            if (fill_holes(values + place * rows, rows, bits + number * size))
                column->holes = bits + number * size;
            column->kind = to_integers(values + place * rows, rows, places_of(first, shape[5]), shape[5], column->whole);
            place++;
        }
        column->packing = column->holes ? HOLES : 0;
    }
    for (int64_t number = 0; number < total; number++)
        if (columns[number].whole)
            bounds_of_steps(columns + number, rows, 0, 0.0);
    for (int64_t pair = 0; pair < count; pair++) {
        Column *own = columns + pairs[pair], *other = columns + pairs[count + pair];
        if (may_follow(own, limits[0]) && may_follow(other, limits[0]) && follow(own, other, rows, limits[1])) {
            own->other = pairs[count + pair];
            told++;
        }
    }
    for (int64_t number = 0; number < total; number++) {
        Column *column = columns + number;
        if (!column->whole)
            continue;
        if (column->other)
            bounds_of_steps(column, rows, columns[column->other].whole, column->factor);
        choose(column, rows, column->other != 0);
    }
    for (int64_t begin = 0, end = kinds; begin < total; begin = end, end = end + shape[4] < total ? end + shape[4] : total) {
        to = write_block(columns, begin, end, rows, (uint64_t *)whole + (kinds + moves) * rows, to);
        *ends++ = to - blocks;
    }
end:
    free(columns);
    free(whole);
    free(bits);
    return told;
}

typedef struct {
    const uint8_t *bytes, *holes, *others, *factors, *planes;
    int64_t count, rows;
} Block;

/* Find the parts of an uncompressed block. Returns whether its size is that of what it says to have. */
static int open_block(Block *block, const uint8_t *bytes, int64_t size)
{
    int64_t holed = 0, told = 0, at = HEAD * block->count;
    block->bytes = bytes;
    if (size < at)
        return 0;
    for (int64_t column = 0; column < block->count; column++) {
        holed += (bytes[block->count + column] & HOLES) != 0;
        told += (bytes[block->count + column] & REFERENCE) != 0;
    }
    block->holes = bytes + at;
    block->others = block->holes + holed * ((block->rows + 7) / 8);
    block->factors = block->others + 2 * told;
    block->planes = block->factors + 8 * told;
    at += holed * ((block->rows + 7) / 8) + 10 * told;
    for (int64_t column = 0; column < block->count; column++) {
        int64_t width = bytes[block->count + column] & WIDTH;
        if (width > 8)
            return 0;
        at += width * block->rows;
    }
    return at == size;
}

static uint64_t shuffled(const Block *block, int64_t column, int64_t first)
{
    uint64_t number = 0;
    for (int64_t plane = 0; plane < 8; plane++)
        number |= (uint64_t)block->bytes[block->count * (first + plane) + column] << 8 * plane;
    return number;
}

/* Write the numbers of those columns that change, [columns, rows], of the others the first one. */
static WIDE int read_numbers(const Block *block, uint64_t *numbers)
{
    const int64_t count = block->count, rows = block->rows;
    const uint8_t *packing = block->bytes + count, *planes = block->planes;
    int64_t told = 0;
    for (int64_t width = 0; width <= 8; width++) {
        int64_t stride = 0;
        for (int64_t column = 0; column < count; column++)
            stride += (packing[column] & WIDTH) == width ? rows : 0;
        for (int64_t column = 0; stride && column < count; column++) {
            uint64_t *own = numbers + column * rows, least = shuffled(block, column, 10);
            int64_t needed = packing[column] ? rows : 1;
            if ((packing[column] & WIDTH) != width)
                continue;
            for (int64_t row = 0; row < needed; row++)
                own[row] = least;
            for (int64_t plane = 0; plane < width; plane++)
                for (int64_t row = 0; row < rows; row++)
                    own[row] += (uint64_t)planes[plane * stride + row] << 8 * plane;
            planes += width ? rows : 0;
            if (packing[column] & DIFFERENCES) {
                own[0] = shuffled(block, column, 2);
                for (int64_t row = 1; row < rows; row++)
                    own[row] += own[row - 1];
            }
        }
        planes += width > 1 ? (width - 1) * stride : 0;
    }
    for (int64_t column = 0; column < count; column++) {
        uint16_t other;
        double factor;
        uint64_t sum = 0, *own = numbers + column * rows;
        if (!(packing[column] & REFERENCE))
            continue;
        memcpy(&other, block->others + 2 * told, 2);
        memcpy(&factor, block->factors + 8 * told++, 8);
        if (other >= count || !packing[other] || packing[other] & REFERENCE)
            return 0;
        for (int64_t row = 1; row < rows; row++) {
            sum += (uint64_t)nearest((double)step((const int64_t *)numbers + other * rows, row) * factor);
            own[row] += sum;
        }
    }
    return 1;
}

static WIDE void to_floats(const uint64_t *numbers, int64_t rows, uint8_t kind, double *values)
{
    if (kind < BITS) {
        for (int64_t row = 0; row < rows; row++)
            values[row] = (double)(int64_t)numbers[row] / FACTORS[kind];
        return;
    }
    for (int64_t row = 0; row < rows; row++) {
        uint64_t bits = kind - BITS < 64 ? numbers[row] << (kind - BITS) : 0;
        memcpy(values + row, &bits, 8);
    }
}

/* Read blocks of chunks, that of the times of a chunk first; each block is [begins[i], begins[i + 1]) of the bytes and has
 * counts[i] columns. Writes the kinds of all columns of all chunks, and of each chunk whether its columns change and
 * their first value; the times, [kinds, pitch]; and the values of all columns of blocks, one block after the other, from
 * `values` on: those that change whole, [rows] each, in the order of columns. Returns the values written, -1 where a
 * block cannot be read. */
int64_t fw_unpack(int64_t blocks, int64_t pitch, const uint8_t *bytes, const int64_t *begins, const int64_t *counts,
                  const int64_t *rows, const uint8_t *are_times, uint8_t *kinds, uint8_t *moves, double *first, int64_t *times,
                  double *values, uint64_t *room)
{
    int64_t written = 0;
    for (int64_t number = 0, at = 0; number < blocks; number++) {
        Block block = {.count = counts[number], .rows = rows[number]};
        const uint8_t *holes;
        if (!open_block(&block, bytes + begins[number], begins[number + 1] - begins[number]) || !read_numbers(&block, room))
            return -1;
        holes = block.holes;
        for (int64_t column = 0; column < block.count; column++, kinds++, moves++, first++) {
            const uint8_t packing = block.bytes[block.count + column];
            const uint64_t *own = room + column * block.rows;
            *kinds = block.bytes[column];
            *moves = packing != 0;
            if (are_times[number]) {
                for (int64_t row = 0; row < block.rows; row++)
                    times[column * pitch + at + row] = (int64_t)own[*moves ? row : 0];
                continue;
            }
            to_floats(own, 1, *kinds, first);
            if (*moves)
                to_floats(own, block.rows, *kinds, values + written);
            if (packing & HOLES) {
                for (int64_t row = 0; row < block.rows; row++)
                    if (holes[row / 8] >> row % 8 & 1)
                        values[written + row] = NAN;
                holes += (block.rows + 7) / 8;
            }
            if (*moves) {
                *first = values[written];
                written += block.rows;
            }
        }
        if (number + 1 == blocks || are_times[number + 1])
            at += block.rows;
    }
    return written;
}

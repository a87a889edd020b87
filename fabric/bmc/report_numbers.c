/* Reads the numbers of a metric report whose other bytes are known: see report_layout.py, which tells what is compared.
 *
 * The report is untrusted. Nothing beyond `size` bytes of it is looked at, and nothing is written but `count` numbers.
 */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { NUMBER, TIME };

static const double POWERS[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9, 1e10,
                                1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19};

/* A number of JSON without exponent that this reads exactly: up to 19 digits, and up to 2^53 where some are decimals, so
 * that both sides of the division are exact and its result is the nearest double. Returns its end, NULL for others. */
static const char *read_number(const char *at, const char *end, double *number) {
    uint64_t digits = 0;
    int count = 0, decimals = 0, negative = at < end && *at == '-';
    const char *first = at += negative;
    for (; at < end && *at >= '0' && *at <= '9'; at++, count++) {
        if (count == 19) return NULL;
        digits = 10 * digits + (uint64_t)(*at - '0');
    }
    if (!count || (count > 1 && *first == '0')) return NULL;
    if (at < end && *at == '.') {
        for (at++; at < end && *at >= '0' && *at <= '9'; at++, count++, decimals++) {
            if (count == 19) return NULL;
            digits = 10 * digits + (uint64_t)(*at - '0');
        }
        if (!decimals || digits > (uint64_t)1 << 53) return NULL;
    }
    *number = (double)digits / POWERS[decimals];
    if (negative) *number = -*number;
    return at;
}

/* Returns the end of a time, which mostly is the one `before`, of `length` bytes. */
static const char *skip_time(const char *at, const char *end, const char *before, size_t length) {
    if ((size_t)(end - at) >= length && !memcmp(at, before, length)) at += length;
    while (at < end && *at && strchr("0123456789-:.+TZ", *at)) at++;
    return at;
}

/* `lengths` and `kinds` have `steps` entries: so many bytes that are as in `same`, then a text of that kind; after the
 * last, `rest` more bytes that are as in `same`. Returns where all that ends in the report, 0 where it is different. */
size_t read_report(const char *report, size_t size, size_t begin, const char *same, size_t rest,
                   const uint32_t *lengths, const uint8_t *kinds, size_t steps, double *numbers, size_t count) {
    if (begin > size) return 0;
    const char *at = report + begin, *end = report + size, *time = at;
    size_t found = 0, length = 0;
    for (size_t step = 0; step < steps; step++) {
        if ((size_t)(end - at) < lengths[step] || memcmp(at, same, lengths[step])) return 0;
        at += lengths[step];
        same += lengths[step];
        if (kinds[step] == TIME) {
            const char *next = skip_time(at, end, time, length);
            time = at;
            length = (size_t)(next - at);
            at = next;
        } else {
            if (found == count || !(at = read_number(at, end, numbers + found))) return 0;
            found++;
        }
    }
    if ((size_t)(end - at) < rest || memcmp(at, same, rest) || found != count) return 0;
    return (size_t)(at + rest - report);
}

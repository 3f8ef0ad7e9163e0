/* A kernel's functions for another process: requests come on the standard input, answers go to the standard output.
 *
 * Compiled with KERNEL, the kernel's source. A request is the function's number, the number of arguments, and each argument:
 * its kind, then an integer, or a buffer's size and bytes. The answer is what the function returns and the bytes of the buffers
 * that it writes. A buffer ends where a page begins that nobody may touch, so that reading on behind it is an end. */

#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include KERNEL

enum { INTEGER, READ, WRITTEN };
#define MOST_ARGUMENTS 12

typedef struct {
    int64_t kind, value; /* a buffer's size */
    char *at;
} argument;

static void take(void *to, size_t size) {
    if (fread(to, 1, size, stdin) != size) exit(0);
}

static size_t pages(int64_t size) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    return ((size_t)size + page - 1) / page * page;
}

static void *guarded(int64_t size) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE), room = pages(size);
    char *from = mmap(NULL, room + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (from == MAP_FAILED || mprotect(from + room, page, PROT_NONE)) exit(2);
    return from + room - size;
}

#define I(n) a[n].value
#define P(n) (void *)a[n].at

static int64_t called(int64_t function, const argument *a) {
#if defined(PRODUCT)
    return function ? -1 : quantised_product(P(0), P(1), P(2), P(3), P(4), P(5), I(6), P(7), P(8), I(9), I(10));
#elif defined(WINDOWS)
    if (!function) return windowed_product(P(0), I(1), P(2), P(3), P(4), P(5), P(6), P(7), I(8), I(9), I(10));
    plane(P(0), I(1), P(2), P(3), P(4), I(5), P(6), P(7), I(8));
    return 0;
#else
    if (!function) return usable();
    tensor_root(P(0), I(1), I(2), I(3), P(4), I(5), P(6), P(7));
    return 0;
#endif
}

int main(void) {
    for (;;) {
        int64_t function, count;
        argument a[MOST_ARGUMENTS] = {{0}};
        take(&function, sizeof function), take(&count, sizeof count);
        for (int64_t i = 0; i < count; i++) {
            take(&a[i].kind, sizeof a[i].kind), take(&a[i].value, sizeof a[i].value);
            if (a[i].kind == INTEGER || a[i].value < 0) continue;
            a[i].at = guarded(a[i].value);
            if (a[i].value) take(a[i].at, (size_t)a[i].value);
        }
        int64_t made = called(function, a);
        fwrite(&made, 1, sizeof made, stdout);
        for (int64_t i = 0; i < count; i++) {
            if (a[i].kind == WRITTEN && a[i].at) fwrite(a[i].at, 1, (size_t)a[i].value, stdout);
            if (a[i].at) munmap(a[i].at - (pages(a[i].value) - (size_t)a[i].value), pages(a[i].value) + (size_t)sysconf(_SC_PAGESIZE));
        }
        fflush(stdout);
    }
}

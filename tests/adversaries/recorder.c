/* Writes down what a process does to the files below $RECORDED, in order, with the data: loaded by LD_PRELOAD.
 *
 * One entry a call, in $RECORD: a line "operation path number number", then as many bytes as the last number
 * says. write: offset, length. truncate: length, 0. rename: 0 and the length of the new path, which follows.
 * create, sync, syncdir, unlink: 0, 0. What is written through memory maps is not seen (SQLite's -shm files,
 * which no loss of power has to leave whole).
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define FDS 1024
static char paths[FDS][PATH_MAX];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int record_fd = -1;

#define REAL(type, name, ...) \
    static type (*real)(__VA_ARGS__); \
    if (!real) real = (type (*)(__VA_ARGS__))dlsym(RTLD_NEXT, name)

static int below(const char *path) {
    const char *root = getenv("RECORDED");
    return root && path && strncmp(path, root, strlen(root)) == 0;
}

static void put(const void *data, size_t size) {
    const char *at = data;
    while (size) {
        ssize_t done = syscall(SYS_write, record_fd, at, size);
        if (done <= 0) abort();
        at += done;
        size -= done;
    }
}

static void note(const char *what, const char *path, long long a, size_t size, const void *data) {
    char line[PATH_MAX + 80];
    pthread_mutex_lock(&lock);
    if (record_fd < 0)
        record_fd = syscall(SYS_openat, AT_FDCWD, getenv("RECORD"), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    put(line, snprintf(line, sizeof line, "%s %s %lld %zu\n", what, path, a, size));
    put(data, size);
    pthread_mutex_unlock(&lock);
}

static int opened(int fd, const char *path, int flags, int existed) {
    if (fd >= 0 && fd < FDS) {
        paths[fd][0] = 0;
        if (below(path)) {
            strncpy(paths[fd], path, PATH_MAX - 1);
            if (!existed && (flags & O_CREAT)) note("create", path, 0, 0, "");
            if (flags & O_TRUNC) note("truncate", path, 0, 0, "");
        }
    }
    return fd;
}

#define OPEN(name) \
    int name(const char *path, int flags, ...) { \
        REAL(int, #name, const char *, int, ...); \
        va_list rest; \
        va_start(rest, flags); \
        mode_t mode = va_arg(rest, mode_t); \
        va_end(rest); \
        int existed = access(path, F_OK) == 0; \
        return opened(real(path, flags, mode), path, flags, existed); \
    }
#define OPENAT(name) \
    int name(int at, const char *path, int flags, ...) { \
        REAL(int, #name, int, const char *, int, ...); \
        va_list rest; \
        va_start(rest, flags); \
        mode_t mode = va_arg(rest, mode_t); \
        va_end(rest); \
        int existed = access(path, F_OK) == 0; \
        return opened(real(at, path, flags, mode), path, flags, existed); \
    }
OPEN(open)
OPEN(open64)
OPENAT(openat)
OPENAT(openat64)

static const char *of(int fd) { return fd >= 0 && fd < FDS && paths[fd][0] ? paths[fd] : NULL; }

ssize_t write(int fd, const void *data, size_t size) {
    REAL(ssize_t, "write", int, const void *, size_t);
    struct stat about;
    long long at = 0;
    if (of(fd)) {
        fstat(fd, &about);
        at = fcntl(fd, F_GETFL) & O_APPEND ? about.st_size : lseek(fd, 0, SEEK_CUR);
    }
    ssize_t done = real(fd, data, size);
    if (of(fd) && done > 0) note("write", of(fd), at, done, data);
    return done;
}

#define PWRITE(name) \
    ssize_t name(int fd, const void *data, size_t size, off_t at) { \
        REAL(ssize_t, #name, int, const void *, size_t, off_t); \
        ssize_t done = real(fd, data, size, at); \
        if (of(fd) && done > 0) note("write", of(fd), at, done, data); \
        return done; \
    }
PWRITE(pwrite)
PWRITE(pwrite64)

#define TRUNCATE(name) \
    int name(int fd, off_t size) { \
        REAL(int, #name, int, off_t); \
        int done = real(fd, size); \
        if (of(fd) && !done) note("truncate", of(fd), size, 0, ""); \
        return done; \
    }
TRUNCATE(ftruncate)
TRUNCATE(ftruncate64)

#define SYNC(name) \
    int name(int fd) { \
        REAL(int, #name, int); \
        struct stat about; \
        int done = real(fd); \
        if (of(fd) && !done && !fstat(fd, &about)) \
            note(S_ISDIR(about.st_mode) ? "syncdir" : "sync", of(fd), 0, 0, ""); \
        return done; \
    }
SYNC(fsync)
SYNC(fdatasync)

int rename(const char *from, const char *to) {
    REAL(int, "rename", const char *, const char *);
    int done = real(from, to);
    if (!done && below(to)) note("rename", from, 0, strlen(to), to);
    return done;
}

int unlink(const char *path) {
    REAL(int, "unlink", const char *);
    int done = real(path);
    if (!done && below(path)) note("unlink", path, 0, 0, "");
    return done;
}

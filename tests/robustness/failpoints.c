/* Makes chosen calls of a process fail: a test preloads it, and arms it through the file that FAILPOINTS names.
 *
 * Calls are counted only in the armed process: children that inherit the library are left alone.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

/* As in failpoints.py. */
enum { OPEN = 1, DESCRIPTOR = 2, FORK = 4, THREAD = 8, CONNECT = 16, READ = 32, WRITE = 64, SYNC = 128, LOCK = 256,
       MAP = 512, RENAME = 1024 };
enum { ANY_PROCESS = -1, PATH_BYTES = 512 };

static struct control {
    _Atomic int64_t pid;    /* 0: not armed; ANY_PROCESS: the first process that loads this */
    int64_t calls;          /* kinds of calls, as bits */
    int64_t error;          /* errno of a call that fails */
    int64_t first;          /* number of the first call that fails, from 1 */
    int64_t count;          /* how many fail in a row */
    _Atomic int64_t seen;   /* calls so far */
    _Atomic int64_t failed; /* calls that failed */
    char under[PATH_BYTES]; /* only files whose paths begin with this */
    char where[PATH_BYTES]; /* the first call that failed */
} *control;

__attribute__((constructor)) static void attach(void)
{
    const char *path = getenv("FAILPOINTS");
    if (!path)
        return;
    int file = syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CLOEXEC);
    if (file < 0)
        return;
    void *found = (void *)syscall(SYS_mmap, NULL, sizeof *control, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    syscall(SYS_close, file);
    if (found == MAP_FAILED)
        return;
    control = found;
    int64_t any = ANY_PROCESS;
    atomic_compare_exchange_strong(&control->pid, &any, getpid());
}

static int armed(int call)
{
    return control && atomic_load(&control->pid) == getpid() && control->calls & call;
}

/* Counts a call; 1, with errno set, if it is to fail. */
static int hit(const char *name, const char *path)
{
    int64_t number = atomic_fetch_add(&control->seen, 1) + 1;
    if (number < control->first || number >= control->first + control->count)
        return 0;
    if (atomic_fetch_add(&control->failed, 1) == 0)
        snprintf(control->where, PATH_BYTES, "%s %s", name, path);
    errno = control->error;
    return 1;
}

static int fails(int call, const char *name)
{
    return armed(call) && hit(name, "");
}

static int fails_at(int call, const char *name, const char *path)
{
    return armed(call) && path && !strncmp(path, control->under, strlen(control->under)) && hit(name, path);
}

/* Files only: what a full disk does to them does not happen to sockets and pipes. */
static int fails_on(int call, const char *name, int file)
{
    struct stat status;
    char link[64], path[PATH_BYTES];
    int before = errno;
    if (!armed(call))
        return 0;
    if (fstat(file, &status) || !S_ISREG(status.st_mode)) {
        errno = before;
        return 0;
    }
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = readlink(link, path, PATH_BYTES - 1);
    errno = before;
    path[length < 0 ? 0 : length] = 0;
    return fails_at(call, name, path);
}

#define REAL(name) \
    static __typeof__(name) *real; \
    if (!real) \
        real = (__typeof__(name) *)dlsym(RTLD_NEXT, #name)

/* What fails is a condition in terms of the parameters. */
#define FUNCTION(type, name, parameters, arguments, failing, failure) \
    type name parameters \
    { \
        REAL(name); \
        if (failing) \
            return failure; \
        return real arguments; \
    }

#define MODE(flags, mode) \
    mode_t mode = 0; \
    if (flags & (O_CREAT | __O_TMPFILE)) { \
        va_list rest; \
        va_start(rest, flags); \
        mode = va_arg(rest, mode_t); \
        va_end(rest); \
    }

#define OPENS(name) \
    int name(const char *path, int flags, ...) \
    { \
        MODE(flags, mode) \
        REAL(name); \
        return fails_at(OPEN, #name, path) ? -1 : real(path, flags, mode); \
    }
OPENS(open)
OPENS(open64)

#define OPENS_AT(name) \
    int name(int folder, const char *path, int flags, ...) \
    { \
        MODE(flags, mode) \
        REAL(name); \
        return fails_at(OPEN, #name, path) ? -1 : real(folder, path, flags, mode); \
    }
OPENS_AT(openat)
OPENS_AT(openat64)

FUNCTION(int, socket, (int family, int type, int protocol), (family, type, protocol), fails(DESCRIPTOR, "socket"), -1)
FUNCTION(int, socketpair, (int family, int type, int protocol, int ends[2]), (family, type, protocol, ends),
         fails(DESCRIPTOR, "socketpair"), -1)
FUNCTION(int, accept, (int socket, struct sockaddr *address, socklen_t *length), (socket, address, length),
         fails(DESCRIPTOR, "accept"), -1)
FUNCTION(int, accept4, (int socket, struct sockaddr *address, socklen_t *length, int flags),
         (socket, address, length, flags), fails(DESCRIPTOR, "accept4"), -1)
FUNCTION(int, pipe, (int ends[2]), (ends), fails(DESCRIPTOR, "pipe"), -1)
FUNCTION(int, pipe2, (int ends[2], int flags), (ends, flags), fails(DESCRIPTOR, "pipe2"), -1)
FUNCTION(int, dup, (int file), (file), fails(DESCRIPTOR, "dup"), -1)
FUNCTION(int, eventfd, (unsigned value, int flags), (value, flags), fails(DESCRIPTOR, "eventfd"), -1)
FUNCTION(int, epoll_create1, (int flags), (flags), fails(DESCRIPTOR, "epoll_create1"), -1)
FUNCTION(int, memfd_create, (const char *name, unsigned flags), (name, flags), fails(DESCRIPTOR, "memfd_create"), -1)

long syscall(long number, ...)
{
    long given[6];
    va_list rest;
    va_start(rest, number);
    for (int index = 0; index < 6; index++)
        given[index] = va_arg(rest, long);
    va_end(rest);
    REAL(syscall);
    /* Python has no other way to call it. */
    if (number == SYS_pidfd_open && fails(DESCRIPTOR, "pidfd_open"))
        return -1;
    return real(number, given[0], given[1], given[2], given[3], given[4], given[5]);
}

/* A process that is out of descriptors receives a message without the descriptors in it. */
ssize_t recvmsg(int socket, struct msghdr *message, int flags)
{
    REAL(recvmsg);
    ssize_t size = real(socket, message, flags);
    if (size < 0)
        return size;
    for (struct cmsghdr *part = CMSG_FIRSTHDR(message); part; part = CMSG_NXTHDR(message, part)) {
        if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS || !fails(DESCRIPTOR, "recvmsg"))
            continue;
        for (size_t place = 0; place < part->cmsg_len - CMSG_LEN(0); place += sizeof(int))
            close(*(int *)(CMSG_DATA(part) + place));
        message->msg_controllen = 0;
        message->msg_flags |= MSG_CTRUNC;
        break;
    }
    return size;
}

FUNCTION(pid_t, fork, (void), (), fails(FORK, "fork"), -1)
/* It returns twice, so the last call must be a jump: this file is compiled with optimization. */
FUNCTION(pid_t, vfork, (void), (), fails(FORK, "vfork"), -1)
FUNCTION(int, posix_spawn,
         (pid_t *pid, const char *path, const posix_spawn_file_actions_t *actions, const posix_spawnattr_t *attributes,
          char *const arguments[], char *const environment[]),
         (pid, path, actions, attributes, arguments, environment), fails(FORK, "posix_spawn"), errno)
FUNCTION(int, pthread_create,
         (pthread_t *thread, const pthread_attr_t *attributes, void *(*function)(void *), void *argument),
         (thread, attributes, function, argument), fails(THREAD, "pthread_create"), errno)

FUNCTION(int, connect, (int socket, const struct sockaddr *address, socklen_t length), (socket, address, length),
         fails(CONNECT, "connect"), -1)

FUNCTION(ssize_t, read, (int file, void *data, size_t size), (file, data, size), fails_on(READ, "read", file), -1)
FUNCTION(ssize_t, pread, (int file, void *data, size_t size, off_t place), (file, data, size, place),
         fails_on(READ, "pread", file), -1)
FUNCTION(ssize_t, pread64, (int file, void *data, size_t size, off64_t place), (file, data, size, place),
         fails_on(READ, "pread64", file), -1)

FUNCTION(ssize_t, write, (int file, const void *data, size_t size), (file, data, size),
         fails_on(WRITE, "write", file), -1)
FUNCTION(ssize_t, writev, (int file, const struct iovec *data, int count), (file, data, count),
         fails_on(WRITE, "writev", file), -1)
FUNCTION(ssize_t, pwrite, (int file, const void *data, size_t size, off_t place), (file, data, size, place),
         fails_on(WRITE, "pwrite", file), -1)
FUNCTION(ssize_t, pwrite64, (int file, const void *data, size_t size, off64_t place), (file, data, size, place),
         fails_on(WRITE, "pwrite64", file), -1)
FUNCTION(int, ftruncate, (int file, off_t size), (file, size), fails_on(WRITE, "ftruncate", file), -1)
FUNCTION(int, ftruncate64, (int file, off64_t size), (file, size), fails_on(WRITE, "ftruncate64", file), -1)

FUNCTION(int, fsync, (int file), (file), fails_on(SYNC, "fsync", file), -1)
FUNCTION(int, fdatasync, (int file), (file), fails_on(SYNC, "fdatasync", file), -1)

FUNCTION(int, rename, (const char *from, const char *to), (from, to), fails_at(RENAME, "rename", to), -1)
FUNCTION(int, mkdir, (const char *path, mode_t mode), (path, mode), fails_at(RENAME, "mkdir", path), -1)
FUNCTION(int, unlink, (const char *path), (path), fails_at(RENAME, "unlink", path), -1)

#define LOCKS(name) \
    int name(int file, int command, ...) \
    { \
        va_list rest; \
        va_start(rest, command); \
        void *argument = va_arg(rest, void *); \
        va_end(rest); \
        REAL(name); \
        int locks = command == F_SETLK || command == F_SETLKW || command == F_OFD_SETLK || command == F_OFD_SETLKW; \
        if (locks && ((struct flock *)argument)->l_type != F_UNLCK && fails_on(LOCK, #name, file)) \
            return -1; \
        if ((command == F_DUPFD || command == F_DUPFD_CLOEXEC) && fails(DESCRIPTOR, #name)) \
            return -1; \
        return real(file, command, argument); \
    }
LOCKS(fcntl)
LOCKS(fcntl64)
FUNCTION(int, flock, (int file, int operation), (file, operation), fails_on(LOCK, "flock", file), -1)

FUNCTION(void *, mmap, (void *address, size_t size, int protection, int flags, int file, off_t place),
         (address, size, protection, flags, file, place), file >= 0 && fails_on(MAP, "mmap", file), MAP_FAILED)
FUNCTION(void *, mmap64, (void *address, size_t size, int protection, int flags, int file, off64_t place),
         (address, size, protection, flags, file, place), file >= 0 && fails_on(MAP, "mmap64", file), MAP_FAILED)

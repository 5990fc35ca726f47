/* Faults of disk and clock on purpose, for scripts/campaign: LD_PRELOAD this into the program.
 *
 *   FAULT_PATH   parts of paths, separated by ':'; only operations on files whose path has one of them count
 *   FAULT_AT     the number of the operation that fails, from 1; 0 or unset: none
 *   FAULT_KIND   kill (SIGKILL before it), torn (half of a write, then SIGKILL), eio, enospc, erofs, short (half a write),
 *                slow (FAULT_MS each, from FAULT_AT on)
 *   FAULT_COUNT  how many operations fail from there on; 0: all
 *   FAULT_TRACE  file that gets a line for each operation that counts
 *
 *   CLOCK_BEFORE, CLOCK_AFTER  seconds by which the wall clock is off, up to and from reading number CLOCK_AT on
 *   CLOCK_TRACE  file that exists afterwards if the wall clock was read. The monotonic clock goes on, as it does when one is set.
 *
 * Operations: opening for writing, write, pwrite, fsync, fdatasync, ftruncate, mkdir, rename, unlink, rmdir. What the program
 * asks the kernel for without the C library (rustix: the last rename of a temporary file) is not seen; the operations before
 * and after it are. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static atomic_long seen;

static long number(const char *name) {
  const char *text = getenv(name);
  return text ? atol(text) : 0;
}

static int counts(const char *path) {
  const char *parts = getenv("FAULT_PATH");
  while (parts && *parts) {
    size_t length = strcspn(parts, ":");
    if (length > 0 && memmem(path, strlen(path), parts, length)) return 1;
    parts += length + (parts[length] == ':');
  }
  return 0;
}

static void path_of(int fd, char *path) {
  char link[64];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t length = readlink(link, path, PATH_MAX - 1);
  path[length > 0 ? length : 0] = 0;
}

static void die(void) {
  syscall(SYS_kill, getpid(), SIGKILL);
  for (;;) pause();
}

/* 0: do it. Else what is to go wrong with this operation: an errno, or -1 for half a write, -2 for half a write and the end. */
static int fault(const char *operation, const char *path) {
  if (!counts(path)) return 0;
  long now = atomic_fetch_add(&seen, 1) + 1, at = number("FAULT_AT"), count = number("FAULT_COUNT");
  const char *trace = getenv("FAULT_TRACE"), *kind = getenv("FAULT_KIND");
  if (trace) {
    char line[PATH_MAX + 64];
    int length = snprintf(line, sizeof line, "%ld %s %s\n", now, operation, path);
    int fd = syscall(SYS_openat, AT_FDCWD, trace, O_WRONLY | O_CREAT | O_APPEND, 0644);
    if (fd >= 0) {
      (void)!syscall(SYS_write, fd, line, length);
      syscall(SYS_close, fd);
    }
  }
  if (!kind || at <= 0 || now < at || (count > 0 && now >= at + count)) return 0;
  if (!strcmp(kind, "kill")) die();
  if (!strcmp(kind, "torn")) return -2;
  if (!strcmp(kind, "short")) return -1;
  if (!strcmp(kind, "eio")) return EIO;
  if (!strcmp(kind, "enospc")) return ENOSPC;
  if (!strcmp(kind, "erofs")) return EROFS;
  if (!strcmp(kind, "slow")) {
    long ms = number("FAULT_MS");
    nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000}, NULL);
  }
  return 0;
}

#define FAIL_IF(what) do { int wrong = what; if (wrong > 0) { errno = wrong; return -1; } if (wrong == -2) die(); } while (0)

static int writes(int flags) { return (flags & O_ACCMODE) != O_RDONLY || (flags & (O_CREAT | O_TRUNC)); }

#define OPEN(name)                                                                                                            \
  int name(const char *path, int flags, ...) {                                                                                \
    va_list rest;                                                                                                             \
    va_start(rest, flags);                                                                                                    \
    mode_t mode = flags & O_CREAT ? va_arg(rest, mode_t) : 0;                                                                 \
    va_end(rest);                                                                                                             \
    if (writes(flags)) FAIL_IF(fault("open", path));                                                                          \
    return NEXT(name)(path, flags, mode);                                                                                     \
  }
OPEN(open)
OPEN(open64)

#define WRITE(name, parameters, arguments, half, path_fd)                                                                     \
  ssize_t name parameters {                                                                                                   \
    char path[PATH_MAX];                                                                                                      \
    if (path_fd <= 2) return NEXT(name) arguments;                                                                            \
    path_of(path_fd, path);                                                                                                   \
    int wrong = fault("write", path);                                                                                         \
    if (wrong > 0) { errno = wrong; return -1; }                                                                              \
    if (wrong < 0 && count > 1) {                                                                                             \
      ssize_t done = NEXT(name) half;                                                                                         \
      if (wrong == -2) die();                                                                                                 \
      return done;                                                                                                            \
    }                                                                                                                         \
    return NEXT(name) arguments;                                                                                              \
  }
WRITE(write, (int fd, const void *bytes, size_t count), (fd, bytes, count), (fd, bytes, count / 2), fd)
WRITE(pwrite64, (int fd, const void *bytes, size_t count, off64_t at), (fd, bytes, count, at), (fd, bytes, count / 2, at), fd)

#define ON_FD(name, word, parameters, arguments)                                                                              \
  int name parameters {                                                                                                       \
    char path[PATH_MAX];                                                                                                      \
    path_of(fd, path);                                                                                                        \
    FAIL_IF(fault(word, path));                                                                                               \
    return NEXT(name) arguments;                                                                                              \
  }
ON_FD(fsync, "fsync", (int fd), (fd))
ON_FD(fdatasync, "fsync", (int fd), (fd))
ON_FD(ftruncate64, "truncate", (int fd, off64_t length), (fd, length))

#define ON_PATH(name, word, parameters, arguments)                                                                            \
  int name parameters {                                                                                                       \
    FAIL_IF(fault(word, path));                                                                                               \
    return NEXT(name) arguments;                                                                                              \
  }
ON_PATH(mkdir, "mkdir", (const char *path, mode_t mode), (path, mode))
ON_PATH(rename, "rename", (const char *path, const char *to), (path, to))
ON_PATH(unlink, "unlink", (const char *path), (path))
ON_PATH(rmdir, "rmdir", (const char *path), (path))

/* Seconds by which this reading of the wall clock is off. */
static long off(void) {
  static atomic_long readings;
  if (!getenv("CLOCK_AT")) return 0;
  const char *trace = getenv("CLOCK_TRACE");
  long now = atomic_fetch_add(&readings, 1) + 1;
  if (trace && now == 1) {
    int fd = syscall(SYS_openat, AT_FDCWD, trace, O_WRONLY | O_CREAT, 0644);
    if (fd >= 0) syscall(SYS_close, fd);
  }
  return number(now < number("CLOCK_AT") ? "CLOCK_BEFORE" : "CLOCK_AFTER");
}

int clock_gettime(clockid_t id, struct timespec *now) {
  int failed = (int)syscall(SYS_clock_gettime, id, now);
  if (!failed && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) now->tv_sec += off();
  return failed;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
  int failed = (int)syscall(SYS_gettimeofday, now, zone);
  if (!failed) now->tv_sec += off();
  return failed;
}

time_t time(time_t *now) {
  struct timespec found;
  clock_gettime(CLOCK_REALTIME, &found);
  if (now) *now = found.tv_sec;
  return found.tv_sec;
}

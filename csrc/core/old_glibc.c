// Functions of newer glibcs that our code or the C++ library calls, made of older ones. They are linked into libraries that
// run with an older glibc (cmake/old_glibc.py), and no other library sees them.
#include <pthread.h>
#include <sys/stat.h>
#include <time.h>

// Says of a process that it may have several threads (2.32).
char __libc_single_threaded = 0;

// Both of 2.33, and the same on x86-64, where all structures have the version 1.
int __fxstat(int version, int file, struct stat* status);
int fstat(int file, struct stat* status) { return __fxstat(1, file, status); }
int fstat64(int file, struct stat* status) { return __fxstat(1, file, status); }

// Returns the time of the wall clock at which another clock will show `until`.
static struct timespec on_wall_clock(clockid_t clock, const struct timespec* until) {
  struct timespec now, wall;
  clock_gettime(clock, &now);
  clock_gettime(CLOCK_REALTIME, &wall);
  wall.tv_sec += until->tv_sec - now.tv_sec;
  wall.tv_nsec += until->tv_nsec - now.tv_nsec;
  if (wall.tv_nsec < 0) {
    wall.tv_nsec += 1000000000;
    --wall.tv_sec;
  } else if (wall.tv_nsec >= 1000000000) {
    wall.tv_nsec -= 1000000000;
    ++wall.tv_sec;
  }
  return wall;
}

// Both of 2.30. The C++ library asks its own clock again when they return.
int pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock,
                           const struct timespec* until) {
  const struct timespec wall = on_wall_clock(clock, until);
  return pthread_cond_timedwait(condition, mutex, &wall);
}

int pthread_mutex_clocklock(pthread_mutex_t* mutex, clockid_t clock, const struct timespec* until) {
  const struct timespec wall = on_wall_clock(clock, until);
  return pthread_mutex_timedlock(mutex, &wall);
}

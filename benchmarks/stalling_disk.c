/* A disk that does not answer, for benchmarks/stress.py: loaded before libc, fsync and fdatasync wait while the file
   $WINDVANE_STALL exists. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>

static int flush(const char *name, int file) {
    const char *stall = getenv("WINDVANE_STALL");
    while (stall && access(stall, F_OK) == 0) usleep(10000);
    return ((int (*)(int))dlsym(RTLD_NEXT, name))(file);
}

int fsync(int file) { return flush("fsync", file); }
int fdatasync(int file) { return flush("fdatasync", file); }

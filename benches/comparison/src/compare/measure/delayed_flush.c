// Delays fsync and fdatasync, as a slower disk would: loaded into a server by LD_PRELOAD, so that
// it is the same for every server. The system calls are made directly, because this works with any
// version of the C library.
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static void delay(void) {
    const char *text = getenv("FLUSH_DELAY_MICROSECONDS");
    long microseconds = 0;
    for (; text != NULL && *text >= '0' && *text <= '9'; text++) {
        microseconds = microseconds * 10 + (*text - '0');
    }
    // By default, a sleep takes up to 50 us longer than requested.
    prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0);
    struct timespec left = {microseconds / 1000000, microseconds % 1000000 * 1000};
    while (nanosleep(&left, &left) != 0 && errno == EINTR) {
    }
}

static int flush(long call, int file) {
    int result = (int)syscall(call, file);
    int error = errno;
    delay();
    errno = error;
    return result;
}

int fsync(int file) { return flush(SYS_fsync, file); }

int fdatasync(int file) { return flush(SYS_fdatasync, file); }

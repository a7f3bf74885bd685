/* A program with a thread and a child, whose recording is beside it:
 *   cc -o program program.c -lpthread
 *   head -c 300000 /dev/zero > in
 *   strace -f -ttt -e trace=%file,%desc,%process,clock_nanosleep,futex -o program.strace ./program
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <sys/stat.h>
#include <sys/wait.h>
static int fd;
static char buffer[65536];
static void *reads(void *unused) {
    for (int i = 0; i < 4; i++)
        if (pread(fd, buffer, 4096, (off_t)i * 65536) < 0) exit(1);
    usleep(2000);
    return unused;
}
int main(void) {
    pthread_t thread;
    fd = open("in", O_RDONLY);
    posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM);
    pthread_create(&thread, NULL, reads, NULL);
    mkdir("dir", 0755);
    int log = open("dir/log", O_RDWR | O_CREAT | O_APPEND, 0644);
    for (int i = 0; i < 3; i++) {
        if (write(log, "a line of a log\n", 16) != 16) return 1;
        fdatasync(log);
    }
    sync_file_range(log, 0, 48, SYNC_FILE_RANGE_WRITE);
    ftruncate(log, 16);
    fallocate(log, 0, 4096, 8192);
    pthread_join(thread, NULL);
    if (fork() == 0) {
        lseek(fd, 0, SEEK_SET);
        if (read(fd, buffer, 65536) < 0) exit(1);
        rename("dir/log", "dir/log.1");
        exit(0);
    }
    wait(NULL);
    close(log);
    link("dir/log.1", "dir/second");
    symlink("log.1", "dir/newest");
    unlink("dir/none");
    rmdir("dir");
    syncfs(fd);
    return 0;
}

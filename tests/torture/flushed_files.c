/* A disk that loses power: copies each file of POWER_DISK to POWER_FLUSHED when it is flushed, as it is then.
   What was written and not flushed is missing there. Loaded with LD_PRELOAD; see test_power_loss.py. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void copy(const char *from, const char *to) {
    char aside[PATH_MAX + 32], buffer[65536];
    snprintf(aside, sizeof aside, "%s.copy-%d", to, gettid());
    int in = open(from, O_RDONLY), out = open(aside, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    ssize_t count;
    while (in >= 0 && out >= 0 && (count = read(in, buffer, sizeof buffer)) > 0)
        if (write(out, buffer, count) != count) abort();
    if (in >= 0) close(in);
    if (out >= 0) close(out);
    rename(aside, to);
}

/* Names become durable with their folder: a flushed NAME.new that was renamed is NAME now, and what was removed is gone. */
static void flush_names(const char *folder, const char *target) {
    DIR *entries = opendir(folder);
    mkdir(target, 0700);
    for (struct dirent *entry; entries && (entry = readdir(entries));) {
        char before[PATH_MAX], after[PATH_MAX], real_before[PATH_MAX];
        snprintf(before, sizeof before, "%s/%s.new", target, entry->d_name);
        snprintf(real_before, sizeof real_before, "%s/%s.new", folder, entry->d_name);
        snprintf(after, sizeof after, "%s/%s", target, entry->d_name);
        if (access(before, F_OK) == 0 && access(real_before, F_OK) != 0) rename(before, after);
    }
    if (entries) closedir(entries);
    entries = opendir(target);
    for (struct dirent *entry; entries && (entry = readdir(entries));) {
        char real[PATH_MAX], kept[PATH_MAX];
        snprintf(real, sizeof real, "%s/%s", folder, entry->d_name);
        snprintf(kept, sizeof kept, "%s/%s", target, entry->d_name);
        if (access(real, F_OK) != 0) unlink(kept); /* does nothing to folders */
    }
    if (entries) closedir(entries);
}

static void flushed(int file) {
    const char *disk = getenv("POWER_DISK"), *target = getenv("POWER_FLUSHED");
    char link[64], path[PATH_MAX], to[PATH_MAX];
    struct stat status;
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (!disk || !target || length < 0 || fstat(file, &status)) return;
    path[length] = 0;
    if (strncmp(path, disk, strlen(disk)) != 0) return;
    snprintf(to, sizeof to, "%s%s", target, path + strlen(disk));
    if (S_ISDIR(status.st_mode)) flush_names(path, to);
    else copy(path, to);
}

int fsync(int file) {
    int result = ((int (*)(int))dlsym(RTLD_NEXT, "fsync"))(file);
    if (result == 0) flushed(file);
    return result;
}

int fdatasync(int file) {
    int result = ((int (*)(int))dlsym(RTLD_NEXT, "fdatasync"))(file);
    if (result == 0) flushed(file);
    return result;
}

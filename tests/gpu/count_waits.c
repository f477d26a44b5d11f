/* Counts calls of the CUDA runtime that wait for the GPU, of a program's first thread, which computes.
 * Preloaded by trained.py. Each process has its number in the file STRAIT_WAITS_OUT.PID from its start
 * on, in memory that is mapped to it: so it is there however the process ends. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

static atomic_long not_wanted;
static atomic_long* waits = &not_wanted;

__attribute__((constructor)) static void map_count(void) {
  const char* out = getenv("STRAIT_WAITS_OUT");
  char path[4096];
  if (out == NULL) return;
  snprintf(path, sizeof path, "%s.%d", out, (int)getpid());
  const int file = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (file < 0) return;
  void* mapped = MAP_FAILED;
  if (ftruncate(file, sizeof *waits) == 0)
    mapped = mmap(NULL, sizeof *waits, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  if (mapped != MAP_FAILED) waits = mapped;
}

static void count(void) {
  if (syscall(SYS_gettid) == getpid()) atomic_fetch_add(waits, 1);
}

static void* next(const char* name) {
  void* found = dlsym(RTLD_NEXT, name);
  if (found == NULL) abort();
  return found;
}

int cudaStreamSynchronize(void* stream) {
  count();
  return ((int (*)(void*))next("cudaStreamSynchronize"))(stream);
}
int cudaEventSynchronize(void* event) {
  count();
  return ((int (*)(void*))next("cudaEventSynchronize"))(event);
}
int cudaDeviceSynchronize(void) {
  count();
  return ((int (*)(void))next("cudaDeviceSynchronize"))();
}
int cudaMemcpy(void* to, const void* from, size_t bytes, int kind) {
  count();
  return ((int (*)(void*, const void*, size_t, int))next("cudaMemcpy"))(to, from, bytes, kind);
}

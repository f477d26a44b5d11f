/* Counts calls of the CUDA runtime that wait for the GPU, of a program's first thread, which computes.
 * Preloaded by trained.py; each process writes its number to STRAIT_WAITS_OUT.PID at its end. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

static atomic_long waits;

static void count(void) {
  if (syscall(SYS_gettid) == getpid()) atomic_fetch_add(&waits, 1);
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

__attribute__((destructor)) static void write_count(void) {
  const char* out = getenv("STRAIT_WAITS_OUT");
  char path[4096];
  if (out == NULL || atomic_load(&waits) == 0) return;
  snprintf(path, sizeof path, "%s.%d", out, (int)getpid());
  FILE* file = fopen(path, "w");
  if (file == NULL) return;
  fprintf(file, "%ld\n", atomic_load(&waits));
  fclose(file);
}

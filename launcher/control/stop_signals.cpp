#include "launcher/control/stop_signals.h"

#include <csignal>

namespace strait::control {
namespace {

// Signal handlers can access globals only.
std::atomic<int> g_stop_requests{0};
std::atomic<bool> g_warned{false};
std::atomic<int> g_depth{0};
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<bool>::is_always_lock_free);

void count_stop(int /*signal*/) { g_stop_requests.fetch_add(1); }

void ask_once(int /*signal*/) {
  int none = 0;
  g_stop_requests.compare_exchange_strong(none, 1);
}

void note_warning(int signal) {
  g_warned = true;
  ask_once(signal);
}

void dispose(int signal, void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  ::sigaction(signal, &action, nullptr);
}

}  // namespace

StopSignals::StopSignals() {
  if (g_depth.fetch_add(1) > 0) return;
  g_stop_requests = g_warned ? 1 : 0;
  dispose(SIGINT, count_stop);
  dispose(SIGTERM, count_stop);
  dispose(kAskSignal, ask_once);
  dispose(SIGHUP, SIG_IGN);
  dispose(SIGPIPE, SIG_IGN);
  dispose(SIGXFSZ, SIG_IGN);
}

StopSignals::~StopSignals() {
  if (g_depth.fetch_sub(1) > 1) return;
  for (const int signal : {SIGINT, SIGTERM, kAskSignal, SIGHUP, SIGPIPE, SIGXFSZ}) {
    dispose(signal, SIG_DFL);
  }
}

const std::atomic<int>& StopSignals::count() const { return g_stop_requests; }

void StopSignals::expect_warning() {
  g_warned = false;
  dispose(SIGUSR1, note_warning);
}

bool StopSignals::warned() { return g_warned; }

}  // namespace strait::control

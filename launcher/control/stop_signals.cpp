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

void count_warning(int /*signal*/) {
  g_warned = true;
  g_stop_requests.fetch_add(1);
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
  dispose(SIGHUP, SIG_IGN);
  dispose(SIGPIPE, SIG_IGN);
}

StopSignals::~StopSignals() {
  if (g_depth.fetch_sub(1) > 1) return;
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGPIPE}) dispose(signal, SIG_DFL);
}

const std::atomic<int>& StopSignals::count() const { return g_stop_requests; }

void StopSignals::expect_warning() {
  g_warned = false;
  dispose(SIGUSR1, count_warning);
}

bool StopSignals::warned() { return g_warned; }

}  // namespace strait::control

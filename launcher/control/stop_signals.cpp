#include "launcher/control/stop_signals.h"

#include <array>
#include <csignal>

namespace strait::launcher {
namespace {

// A signal handler can reach nothing but a global.
std::atomic<int> g_stop_requests{0};
static_assert(std::atomic<int>::is_always_lock_free);

void count_stop(int /*signal*/) { g_stop_requests.fetch_add(1); }

void dispose(int signal, void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  ::sigaction(signal, &action, nullptr);
}

}  // namespace

StopSignals::StopSignals() {
  g_stop_requests = 0;
  dispose(SIGINT, count_stop);
  dispose(SIGTERM, count_stop);
  dispose(SIGHUP, SIG_IGN);
  dispose(SIGPIPE, SIG_IGN);
}

StopSignals::~StopSignals() {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGPIPE}) dispose(signal, SIG_DFL);
}

const std::atomic<int>& StopSignals::count() const { return g_stop_requests; }

}  // namespace strait::launcher

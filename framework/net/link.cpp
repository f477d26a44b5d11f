#include "framework/net/link.h"

#include <fmt/format.h>

namespace strait::net {
namespace {

std::string duration_text(std::chrono::steady_clock::duration span) {
  const double seconds = std::chrono::duration<double>(span).count();
  return seconds < 10 ? fmt::format("{:.1f} s", seconds) : fmt::format("{:.0f} s", seconds);
}

double megabytes(std::uint64_t bytes) { return static_cast<double>(bytes) / 1e6; }

}  // namespace

std::string stall_report(const Wait& wait, const LinkState& link,
                         std::chrono::steady_clock::time_point now) {
  std::string text = fmt::format("{} waits {} for {} from {}: ", wait.process,
                                 duration_text(now - wait.since), wait.what, link.peer);
  if (link.awaited_bytes > 0) {
    text += fmt::format("{:.1f} of {:.1f} MB received", megabytes(link.awaited_received),
                        megabytes(link.awaited_bytes));
  } else {
    text += "nothing of it received";
  }
  text += fmt::format(", last byte {} ago", duration_text(now - link.last_data));
  if (!link.connected) {
    text += fmt::format("; the link is down, last heartbeat {} ago",
                        duration_text(now - link.last_heard));
  }
  return text;
}

}  // namespace strait::net

#include "launcher/console/sync_table.h"

#include <fmt/format.h>

#include <algorithm>

#include "launcher/base/text.h"

namespace strait::console {

void SyncTotals::add(std::span<const control::SyncStep> step) {
  for (const control::SyncStep& one : step) {
    control::SyncStep& total = totals_[one.process];
    total.process = one.process;
    total.rounds += one.rounds;
    total.sent_bytes += one.sent_bytes;
    total.bfloat16_bytes += one.bfloat16_bytes;
    total.round_seconds += one.round_seconds;
    total.waited_seconds += one.waited_seconds;
  }
}

std::vector<control::SyncStep> SyncTotals::all() const {
  std::vector<control::SyncStep> steps;
  for (const auto& [process, total] : totals_) steps.push_back(total);
  return steps;
}

std::vector<std::string> sync_table(std::span<const control::SyncStep> processes) {
  std::vector<std::string> lines;
  if (processes.empty()) return lines;
  constexpr const char* kLine = "{:<10}{:>8}{:>11}{:>22}{:>8}{:>12}{:>12}";
  lines.push_back(fmt::format(fmt::runtime(kLine), "replica", "rounds", "sent",
                              "bfloat16 all-reduce", "ratio", "a round", "waited"));
  for (const control::SyncStep& one : processes) {
    const double seconds =
        one.round_seconds / static_cast<double>(std::max<std::uint64_t>(one.rounds, 1));
    lines.push_back(
        fmt::format(fmt::runtime(kLine), one.process, one.rounds, base::byte_text(one.sent_bytes),
                    base::byte_text(one.bfloat16_bytes), fmt::format("{:.1f}x", one.ratio()),
                    fmt::format("{:.3g} s", seconds), fmt::format("{:.3g} s", one.waited_seconds)));
  }
  return lines;
}

}  // namespace strait::console

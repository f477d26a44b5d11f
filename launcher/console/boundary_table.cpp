#include "launcher/console/boundary_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "launcher/base/text.h"

namespace strait::console {
namespace {

std::string share_text(const std::optional<double>& share) {
  return share ? fmt::format("{:.2g} %", 100 * *share) : "-";
}

}  // namespace

void BoundaryTotals::add(std::span<const control::BoundaryStep> step) {
  for (const control::BoundaryStep& one : step) {
    const auto [place, is_new] = totals_.try_emplace({one.boundary, one.direction}, one);
    if (is_new) continue;
    control::BoundaryStep& total = place->second;
    total.raw_bytes += one.raw_bytes;
    total.sent_bytes += one.sent_bytes;
    total.hits += one.hits;
    total.first_visits += one.first_visits;
    total.evictions += one.evictions;
    total.resends += one.resends;
    total.cache_bytes = one.cache_bytes;
    if (one.change) total.change = one.change;
    if (one.error) total.error = one.error;
  }
}

std::vector<control::BoundaryStep> BoundaryTotals::all() const {
  std::vector<control::BoundaryStep> steps;
  for (const char* direction : {"forward", "backward"}) {
    for (const auto& [key, total] : totals_) {
      if (key.second == direction) steps.push_back(total);
    }
  }
  return steps;
}

std::vector<std::string> boundary_table(std::span<const control::BoundaryStep> boundaries) {
  std::vector<std::string> lines;
  if (boundaries.empty()) return lines;
  std::size_t column = 10;
  for (const control::BoundaryStep& one : boundaries)
    column = std::max(column, one.boundary.size() + 1);
  constexpr const char* kLine = "{:<{}}{:<9}{:>10}{:>10}{:>7}{:>8}{:>8}{:>12}{:>9}{:>7}{:>9}{:>8}";
  lines.push_back(fmt::format(fmt::runtime(kLine), "boundary", column, "direction", "float32",
                              "sent", "ratio", "change", "error", "remembered", "hits", "first",
                              "evicted", "resent"));
  for (const control::BoundaryStep& one : boundaries) {
    lines.push_back(fmt::format(fmt::runtime(kLine), one.boundary, column, one.direction,
                                base::byte_text(one.raw_bytes), base::byte_text(one.sent_bytes),
                                fmt::format("{:.1f}x", one.ratio()), share_text(one.change),
                                share_text(one.error), base::byte_text(one.cache_bytes), one.hits,
                                one.first_visits, one.evictions, one.resends));
  }
  return lines;
}

}  // namespace strait::console

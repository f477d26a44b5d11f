#include "launcher/console/link_rates.h"

namespace strait::console {

void LinkRates::add(const std::vector<control::ProcessReport>& reports,
                    std::chrono::steady_clock::time_point now) {
  std::map<std::string, double> rates;
  for (const control::ProcessReport& report : reports) {
    if (!report.progress) continue;
    for (const control::LinkTraffic& link : report.progress->links) {
      // Both ends report the link; each counts what it sent itself.
      Seen& seen = ends_[{link.name, report.process}];
      const double seconds = std::chrono::duration<double>(now - seen.when).count();
      const bool known = seen.when != std::chrono::steady_clock::time_point{};
      if (known && seconds > 0 && link.sent_bytes >= seen.sent) {
        constexpr double kBitsPerByte = 8;
        constexpr double kMega = 1e6;
        const auto bytes = static_cast<double>(link.sent_bytes - seen.sent);
        rates[link.name] += bytes * kBitsPerByte / kMega / seconds;
      }
      seen = {link.sent_bytes, now};
    }
  }
  rates_ = std::move(rates);
}

std::vector<std::pair<std::string, double>> LinkRates::megabits() const {
  return {rates_.begin(), rates_.end()};
}

}  // namespace strait::console

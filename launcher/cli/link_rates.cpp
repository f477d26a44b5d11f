#include "launcher/cli/link_rates.h"

namespace strait::cli {
namespace {

constexpr std::size_t kLinksShown = 3;

std::string link_label(const std::string& name) {
  constexpr std::string_view kUsual = "boundary ";
  return name.rfind(kUsual, 0) == 0 ? name.substr(kUsual.size()) : name;
}

}  // namespace

void LinkRates::add(const std::vector<run::ProcessReport>& reports,
                    std::chrono::steady_clock::time_point now) {
  std::map<std::string, double> rates;
  for (const run::ProcessReport& report : reports) {
    if (!report.progress) continue;
    for (const run::LinkTraffic& link : report.progress->links) {
      // Both ends report the link, and each counts what it sent.
      Seen& seen = ends_[{link.name, report.process}];
      const double seconds = std::chrono::duration<double>(now - seen.when).count();
      const bool known = seen.when != std::chrono::steady_clock::time_point{};
      if (known && seconds > 0 && link.sent_bytes >= seen.sent) {
        // A smaller count means that the process restarted.
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

std::vector<std::string> LinkRates::labels() const {
  std::vector<std::string> labels;
  const auto links = megabits();
  for (std::size_t i = 0; i < std::min(links.size(), kLinksShown); ++i) {
    labels.push_back(fmt::format("{} {:.1f} Mbit/s", link_label(links[i].first), links[i].second));
  }
  if (links.size() > kLinksShown) {
    labels.push_back(fmt::format("+{} links", links.size() - kLinksShown));
  }
  return labels;
}

}  // namespace strait::cli

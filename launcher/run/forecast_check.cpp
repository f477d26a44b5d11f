#include "launcher/run/forecast_check.h"

#include "launcher/base/median.h"

namespace strait::run {
namespace {

using PartKind = plan::StepPart::Kind;

constexpr double kParts = 0.25;         // of the forecast step
constexpr double kLeastParting = 0.05;  // seconds; less is noise
// A part is the cause if it explains this fraction of what the step parts by. Otherwise it is
// waiting.
constexpr double kExplains = 0.5;

const trace::StepMetrics* of_process(const StepLine& line, const net::ProcessName& process) {
  const auto found = std::ranges::find(line.processes, process,
                                       &std::pair<net::ProcessName, trace::StepMetrics>::first);
  return found == line.processes.end() ? nullptr : &found->second;
}

// Checkpoints are not part of the forecast of a step.
double whole_step(const StepLine& line) {
  return std::max(line.seconds - line.checkpoint_seconds, 0.0);
}

double waited_for_rounds(const StepLine& line) {
  double most = 0;
  for (const trace::SyncMetrics& one : line.sync) most = std::max(most, one.waited_seconds);
  return most;
}

bool includes_rounds(const plan::StepPart& part) {
  return part.kind == PartKind::step || part.kind == PartKind::wait;
}

std::optional<double> seconds_of_part(const plan::StepPart& part, const StepLine& line) {
  if (part.kind == PartKind::step) return whole_step(line);
  if (part.kind == PartKind::link) {
    for (const StepLine::LinkBytes& link : line.links) {
      if (link.name != part.link || link.sender != part.process) continue;
      if (link.bytes_per_second <= 0) return std::nullopt;
      return static_cast<double>(link.sent_bytes) / link.bytes_per_second;
    }
    return std::nullopt;
  }
  if (part.kind == PartKind::sync) return waited_for_rounds(line);
  if (part.kind == PartKind::wait) {
    double most = 0;
    for (const auto& [process, one] : line.processes) most = std::max(most, one.busy_seconds);
    return std::max(whole_step(line) - most, 0.0);
  }
  const trace::StepMetrics* const own = of_process(line, part.process);
  if (own == nullptr) return std::nullopt;
  if (part.kind == PartKind::encode) return own->encode_seconds;
  if (part.kind == PartKind::decode) return own->decode_seconds;
  if (part.kind == PartKind::update) return own->update_seconds;
  return std::max(own->busy_seconds - own->update_seconds, 0.0);
}

const char* remedy(const plan::StepPart& part) {
  if (part.kind == PartKind::wait) return "the timeline in report.html shows what waits for what";
  if (part.kind == PartKind::sync) return "strait plan compares the methods of [sync]";
  if (part.assumed) {
    return "its speed was assumed: strait probe measures it, and hosts.links gives it to the plan";
  }
  if (part.kind == PartKind::encode || part.kind == PartKind::decode) {
    return "codecs share the cores with compute: fewer pipeline.threads leave them some";
  }
  return part.kind == PartKind::link
             ? "see whether other programs use the line; strait probe measures "
               "it again"
             : "see whether other programs use the host; strait probe measures "
               "it again";
}

}  // namespace

std::optional<double> ForecastCheck::measured(std::size_t part) const {
  const Seen& seen = seen_[part];
  if (seen.count == 0) return std::nullopt;
  if (parts_[part].kind == PartKind::sync) return rounds();
  return base::median(std::vector<double>(seen.latest.begin(), seen.latest.end())) +
         (includes_rounds(parts_[part]) ? rounds() : 0);
}

double ForecastCheck::rounds() const {
  const auto sync = std::ranges::find(parts_, PartKind::sync, &plan::StepPart::kind);
  if (sync == parts_.end()) return 0;
  const Seen& seen = seen_[static_cast<std::size_t>(sync - parts_.begin())];
  return seen.count == 0 ? 0 : seen.sum / static_cast<double>(seen.count);
}

std::string ForecastCheck::add(const StepLine& line) {
  if (parts_.empty() || ++steps_ <= kWarmUp) return "";
  const bool first_epoch = number(line.step) <= epoch_steps_;
  if (std::exchange(first_epoch_, first_epoch) != first_epoch) seen_.assign(parts_.size(), {});
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    std::optional<double> seconds = seconds_of_part(parts_[i], line);
    if (!seconds) continue;
    if (includes_rounds(parts_[i])) seconds = std::max(*seconds - waited_for_rounds(line), 0.0);
    Seen& seen = seen_[i];
    seen.sum += *seconds;
    ++seen.count;
    seen.latest.push_back(*seconds);
    if (seen.latest.size() > kWindow) seen.latest.pop_front();
  }
  if (said_ || seen_[0].latest.size() < kWindow) return "";
  const double missing = *measured(0) - forecast(0);
  if (std::abs(missing) < std::max(kParts * forecast(0), kLeastParting)) return "";
  said_ = true;
  return sentence();
}

std::optional<std::size_t> ForecastCheck::cause(double missing) const {
  std::optional<std::size_t> most;
  double explained = kExplains * std::abs(missing);
  std::optional<std::size_t> waits;
  for (std::size_t i = 1; i < parts_.size(); ++i) {
    if (parts_[i].kind == PartKind::wait) waits = i;
    const std::optional<double> seconds = measured(i);
    if (parts_[i].kind == PartKind::wait || !seconds) continue;
    const double parting = (*seconds - forecast(i)) * (missing < 0 ? -1 : 1);
    if (parting < explained) continue;
    explained = parting;
    most = i;
  }
  return most ? most : waits;
}

std::string ForecastCheck::sentence() const {
  const double step = *measured(0);
  const auto text = [](double seconds) { return fmt::format("{:.3g} s", seconds); };
  std::string sentence =
      fmt::format("a step takes {}, and its forecast is {}", text(step), text(forecast(0)));
  const std::optional<std::size_t> part = cause(step - forecast(0));
  if (!part || !measured(*part)) return sentence;
  return fmt::format("{}; {} differs most: {}, forecast {}; {}", sentence, parts_[*part].name,
                     text(*measured(*part)), text(std::max(forecast(*part), 0.0)),
                     remedy(parts_[*part]));
}

std::vector<PartSeconds> ForecastCheck::table() const {
  std::vector<PartSeconds> rows;
  if (parts_.empty() || seen_[0].count == 0) return rows;
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    rows.push_back({parts_[i].name, std::max(forecast(i), 0.0), measured(i)});
  }
  const auto parting = [](const PartSeconds& row) {
    return row.measured ? -std::abs(*row.measured - row.forecast) : 1;
  };
  std::ranges::stable_sort(rows.begin() + 1, rows.end(), {}, parting);
  return rows;
}

}  // namespace strait::run

#include "launcher/cli/metric_text.h"

namespace strait::cli {
namespace {

using trace::Unit;

std::string rate_text(double value) {
  if (value < 1e3) return fmt::format("{:.0f}", value);
  if (value < 1e6) return fmt::format("{:.1f}k", value / 1e3);
  return fmt::format("{:.1f}M", value / 1e6);
}

// "8.1e-4": an exponent without the leading zero.
std::string short_power(double value) {
  std::string text = fmt::format("{:.1e}", value);
  const std::size_t zero = text.find('0', text.find('e'));
  if (zero != std::string::npos && zero + 1 < text.size()) text.erase(zero, 1);
  return text;
}

// "27 GFLOP/s", "41.2 TFLOP/s": of 10¹² operations a second.
std::string flops_text(double value) {
  return value < 1 ? fmt::format("{:.3g} GFLOP/s", 1e3 * value)
                   : fmt::format("{:.3g} TFLOP/s", value);
}

std::string line_value(Unit unit, double value, bool whole) {
  switch (unit) {
    case Unit::flag:
      return "";
    case Unit::rate:
      return short_power(value);
    case Unit::tokens_per_second:
      return whole ? fmt::format("{:.0f}", value) : rate_text(value);
    case Unit::teraflops:
      return flops_text(value);
    case Unit::share:
      return fmt::format("{:.0f} %", 100 * value);
    case Unit::bytes:
      return base::byte_text(static_cast<std::uint64_t>(value));
    case Unit::seconds:
      return fmt::format("{:.3g} s", value);
    default:
      return fmt::format("{:.4g}", value);
  }
}

}  // namespace

std::string label_text(const trace::MetricInfo& metric, double value, bool whole) {
  return metric.label.before + line_value(metric.unit, value, whole) + metric.label.after;
}

const char* unit_text(trace::Unit unit) {
  if (unit == trace::Unit::nats) return "nats";
  if (unit == trace::Unit::tokens_per_second) return "tokens/s";
  return unit == trace::Unit::rate ? "per update" : "";
}

std::optional<double> mean_of(const nlohmann::json& value) {
  if (value.is_number()) return value.get<double>();
  if (!value.is_object() || value.empty()) return std::nullopt;
  double sum = 0;
  for (const nlohmann::json& one : value) {
    if (!one.is_number()) return std::nullopt;
    sum += one.get<double>();
  }
  return sum / static_cast<double>(value.size());
}

std::string number_cell(Unit unit, const std::optional<double>& value) {
  if (!value || !std::isfinite(*value)) return "-";
  if (unit == Unit::teraflops) return flops_text(*value);
  if (unit == Unit::share) return fmt::format("{:.2g} %", 100 * *value);
  if (unit == Unit::ratio) return fmt::format("{:.1f}x", *value);
  if (unit == Unit::seconds) return fmt::format("{:.3g} s", *value);
  return fmt::format("{:.4g}", *value);
}

std::string count_cell(Unit unit, std::uint64_t value) {
  return unit == Unit::bytes ? base::byte_text(value) : fmt::format("{}", value);
}

std::string clock_text(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0) return "?";
  constexpr double kMost = 1e9;
  const auto whole = std::int64_t{std::lround(std::min(seconds, kMost))};
  const std::int64_t hours = whole / 3600;
  const std::int64_t minutes = whole / 60 % 60;
  if (hours > 0) return fmt::format("{}:{:02}:{:02}", hours, minutes, whole % 60);
  return fmt::format("{}:{:02}", minutes, whole % 60);
}

}  // namespace strait::cli

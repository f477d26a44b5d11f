#include <fmt/format.h>

#include "launcher/planner/plan_load.h"
#include "launcher/planner/plan_text.h"
#include "launcher/planner/planned_boundary.h"
#include "launcher/planner/planned_layout.h"

namespace strait::planner {
namespace {

// Runs from this many steps on count as long.
constexpr std::int64_t kLongRun = 500;

codec::CodecSettings raw(codec::WireDtype dtype) {
  codec::CodecSettings settings;
  settings.wire_dtype = dtype;
  return settings;
}

codec::CodecSettings few_bits(const std::string& forward, int forward_bits,
                              const std::string& backward, int backward_bits) {
  codec::CodecSettings settings;
  settings.forward = forward;
  settings.forward_bits = forward_bits;
  settings.backward = backward;
  settings.backward_bits = backward_bits;
  return settings;
}

constexpr double kNotMeasured = std::numeric_limits<double>::infinity();

const std::vector<MeasuredCodec>& measured_codecs() {
  static const std::vector<MeasuredCodec> kMeasured{
      {raw(codec::WireDtype::float32), 0, 0},
      {raw(codec::WireDtype::bfloat16), 0, 0.08},
      {few_bits("delta", 6, "fixed", 6), 0.01, 0.1},
      {few_bits("transform", 6, "transform", 6), 0.02, kNotMeasured},
      {few_bits("transform", 5, "transform", 6), 0.02, kNotMeasured},
      {few_bits("transform", 4, "transform", 5), 0.08, kNotMeasured},
      {few_bits("delta", 4, "fixed", 5), 0.09, 0.8},
  };
  return kMeasured;
}

// `chosen` with what a budget does not choose: groups and the size of caches.
codec::CodecSettings with_bits_of(codec::CodecSettings chosen, const codec::CodecSettings& stated) {
  chosen.group = stated.group;
  chosen.cache = stated.cache;
  chosen.cache_disk = stated.cache_disk;
  return chosen;
}

std::string text_of(const codec::CodecSettings& settings) {
  if (settings.forward == "raw") {
    return settings.wire_dtype == codec::WireDtype::float32 ? "raw float32" : "raw bfloat16";
  }
  return fmt::format("{} {} and {} {} bits", settings.forward, settings.forward_bits,
                     settings.backward, settings.backward_bits);
}

}  // namespace

double MeasuredCodec::loss(std::int64_t steps) const {
  return steps < kLongRun ? loss_of_short_run : loss_of_long_run;
}

std::vector<MeasuredCodec> codecs_within(double budget, std::int64_t steps) {
  std::vector<MeasuredCodec> within;
  std::ranges::copy_if(measured_codecs(), std::back_inserter(within),
                       [&](const MeasuredCodec& one) { return one.loss(steps) <= budget; });
  std::ranges::stable_sort(within, {}, [&](const MeasuredCodec& one) { return one.loss(steps); });
  return within;
}

std::string choose_codec(plan::Plan& open, const PipelineQuestion& question) {
  const double budget = open.recipe.codec.budget;
  struct Planned {
    MeasuredCodec codec;
    double seconds;
  };
  std::vector<Planned> planned;
  for (const MeasuredCodec& one : codecs_within(budget, open.steps)) {
    plan::Plan tried = open;
    tried.recipe.codec = with_bits_of(one.settings, open.recipe.codec);
    const bool caches = caches_samples(tried.recipe.codec, codec::Direction::forward);
    if (caches && open.recipe.codec.cache + open.recipe.codec.cache_disk == 0) continue;
    const std::vector<plan::Layout> layouts = quick_layouts(tried, question);
    if (!layouts.empty()) planned.push_back({one, layouts.front().step_seconds});
  }
  // Without a layout that fits, the plan of raw boundaries says what is wrong.
  if (planned.empty()) {
    open.recipe.codec.budget = 0;
    return "";
  }
  const double shortest = std::ranges::min(planned, {}, &Planned::seconds).seconds;
  const auto chosen = std::ranges::find_if(
      planned, [&](const Planned& one) { return one.seconds <= kSameStep * shortest; });
  open.recipe.codec = with_bits_of(chosen->codec.settings, open.recipe.codec);
  std::string others;
  for (const Planned& one : planned) {
    if (&one == &*chosen) continue;
    others += fmt::format("{}{} {}", others.empty() ? "" : ", ", text_of(one.codec.settings),
                          forecast_seconds(open, one.seconds));
  }
  return fmt::format(
      "codec.budget = \"{} %\": {}, which cost {} % of the loss where that was measured; a step "
      "takes {}{}{}",
      budget, text_of(chosen->codec.settings), chosen->codec.loss(open.steps),
      forecast_seconds(open, chosen->seconds), others.empty() ? "" : "; the others: ", others);
}

std::string codec_note(const plan::Plan& plan, const plan::Plan& open,
                       const PipelineQuestion& question) {
  const codec::CodecSettings& codec = plan.recipe.codec;
  if (codec.forward != "raw" || codec.backward != "raw") return "";
  if (question.before != nullptr || !knows_links(plan)) return "";
  std::vector<plan::Layout> layouts;
  for (const recipe::Recipe* recipe : {&plan.recipe, &open.recipe}) {
    plan::Plan tried = open;
    tried.recipe = *recipe;
    tried.recipe.codec.forward = tried.recipe.codec.backward = "auto";
    std::ranges::move(quick_layouts(tried, question), std::back_inserter(layouts));
  }
  if (layouts.empty()) return "";
  const plan::Layout best = std::ranges::min(layouts, {}, &plan::Layout::step_seconds);
  const double now = layout_of(plan).step_seconds;
  if (now < kClearlySlower * best.step_seconds) return "";
  return fmt::format(
      "with codec.budget = \"0.1 %\" the plan chooses few bits for boundaries: a step takes {}, "
      "not "
      "{} ({})",
      forecast_seconds(plan, best.step_seconds), forecast_seconds(plan, now), layout_text(best));
}

}  // namespace strait::planner

#include "launcher/plan/step_forecast.h"

#include "schedules/choose_depth.h"
#include "schedules/schedule.h"

namespace strait::launcher {
namespace {

constexpr double kBackwardCost = 2.0;  // of a forward

schedules::PipelineShape shape_of(const StepCosts& costs, std::int64_t depth) {
  return {static_cast<int>(costs.stages.size()), static_cast<int>(costs.micro_batches),
          static_cast<int>(depth)};
}

}  // namespace

schedules::StageCost stage_cost(const models::ModelDescription& model,
                                const models::LayerRange& layers, std::int64_t tokens,
                                std::int64_t threads) {
  double flops = 0;
  for (int i = layers.first; i <= layers.last; ++i) {
    flops += model.layers[static_cast<std::size_t>(i)].forward_flops_per_token;
  }
  schedules::StageCost cost;
  cost.forward_seconds =
      flops * static_cast<double>(tokens) / (kAssumedFlopsPerThread * static_cast<double>(threads));
  cost.backward_seconds = kBackwardCost * cost.forward_seconds;
  return cost;
}

double link_bytes_per_second(const Recipe& recipe) {
  return recipe.hosts.link_megabits ? *recipe.hosts.link_megabits * 1e6 / 8
                                    : kAssumedLinkBytesPerSecond;
}

schedules::LinkCost link_cost(double forward_bytes, double backward_bytes,
                              double bytes_per_second) {
  schedules::LinkCost link;
  link.forward_bytes = forward_bytes;
  link.backward_bytes = backward_bytes;
  link.forward_bytes_per_second = bytes_per_second;
  link.backward_bytes_per_second = bytes_per_second;
  return link;
}

std::int64_t best_depth(const StepCosts& costs) {
  return schedules::choose_depth(schedules::schedule_named(name_of(costs.schedule)),
                                 shape_of(costs, 0), costs.stages, costs.links,
                                 static_cast<int>(costs.micro_batches));
}

double step_seconds(const StepCosts& costs, std::int64_t depth) {
  const auto lists = schedules::action_lists(schedules::schedule_named(name_of(costs.schedule)),
                                             shape_of(costs, depth));
  return schedules::simulate(lists, costs.stages, costs.links).seconds;
}

}  // namespace strait::launcher

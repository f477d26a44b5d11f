#pragma once

#include <algorithm>
#include <limits>

#include "framework/trace/metric.h"

// To add a metric of a step: add a member and its row here, and measure it in
// stages/stage_loop.cpp. Then add the row that the test of docs/metrics.md prints.
namespace strait::trace {

// One step, as reported by one process, or combined over all processes.
struct StepMetrics {
  std::optional<double> loss;
  std::optional<double> margin;
  std::optional<double> accuracy;
  std::optional<double> grad_norm;
  std::optional<double> learning_rate;
  std::optional<std::int64_t> tokens;
  std::optional<std::int64_t> targets;
  double seconds = 0;
  double busy_seconds = 0;
  double tokens_per_second = 0;
  std::uint64_t bytes_forward = 0;
  std::uint64_t bytes_backward = 0;
  std::uint64_t bytes_sync = 0;
  std::uint64_t bytes_tied = 0;
  double update_seconds = 0;
  double encode_seconds = 0;
  double decode_seconds = 0;
  double tied_wait_seconds = 0;
  double checkpoint_seconds = 0;
  std::uint64_t memory_bytes = 0;
  std::uint64_t program_bytes = 0;
  std::uint64_t gpu_memory_bytes = 0;
  double gpu_busy = 0;
  double gpu_celsius = 0;
  double useful_flops = 0;  // of the step, by the process
  double peak_flops = 0;    // of its device, or its share of one, in a second; 0: not known
  double devices = 0;
  double tokens_per_second_per_device = 0;
  double tflops = 0;
  double mfu = 0;
  double own_cores = 0;              // used by the process, mean since its previous report
  std::optional<double> host_cores;  // used by all programs of its host meanwhile
  double router_loss = 0;
  double expert_load = 0;
  std::int64_t idle_experts = 0;
  bool skipped = false;
  bool own_rows = false;  // loss, norm, tokens and targets are those of the own replica
  double idle = 0;
};
inline double tokens_per_second(const StepMetrics& step) {
  return step.seconds > 0 ? static_cast<double>(step.tokens.value_or(0)) / step.seconds : 0;
}
inline double tokens_per_second_per_device(const StepMetrics& step) {
  return step.devices > 0 ? tokens_per_second(step) / step.devices : 0;
}
inline double tera_flops(const StepMetrics& step) {
  constexpr double kTera = 1e12;
  return step.seconds > 0 ? step.useful_flops / step.seconds / kTera : 0;
}
inline double flops_utilization(const StepMetrics& step) {
  return step.peak_flops > 0 && step.seconds > 0
             ? step.useful_flops / step.seconds / step.peak_flops
             : std::numeric_limits<double>::quiet_NaN();
}
inline double idle_share(const StepMetrics& step) {
  return step.seconds > 0 ? std::clamp(1 - step.busy_seconds / step.seconds, 0.0, 1.0) : 0;
}

// Seconds are a mean, not a maximum. A process that waits for another one in this step need not
// wait in the next, and the steps of a run must add up to its time.
template <>
inline constexpr std::tuple kMetrics<StepMetrics> = {
    metric(&StepMetrics::loss,
           {.key = "loss",
            .unit = Unit::nats,
            .combine = Combine::first,
            .meaning = "mean over the target tokens of the step, or over its pairs",
            .label = {1, "loss "},
            .status = Status::line,
            .chart = {1, "Loss"}}),
    metric(&StepMetrics::margin,
           {.key = "margin",
            .combine = Combine::first,
            .meaning = "of preferences: rewards of chosen - rejected answers, mean over pairs",
            .label = {1, "margin "}}),
    metric(&StepMetrics::accuracy, {.key = "accuracy",
                                    .unit = Unit::share,
                                    .combine = Combine::first,
                                    .meaning = "of preferences: pairs with a margin above 0",
                                    .label = {1, "accuracy "}}),
    metric(&StepMetrics::grad_norm, {.key = "grad_norm",
                                     .combine = Combine::first,
                                     .meaning = "norm of the whole gradient before clipping",
                                     .chart = {2, "Gradient norm"}}),
    metric(&StepMetrics::learning_rate, {.key = "learning_rate",
                                         .unit = Unit::rate,
                                         .combine = Combine::first,
                                         .meaning = "of this update",
                                         .label = {2, "lr "},
                                         .chart = {4, "Learning rate"}}),
    metric(&StepMetrics::tokens, {.key = "tokens",
                                  .unit = Unit::tokens,
                                  .combine = Combine::max,
                                  .meaning = "of all sequences, targets or not"}),
    metric(&StepMetrics::targets,
           {.key = "targets",
            .unit = Unit::tokens,
            .combine = Combine::max,
            .meaning = "of these, or pairs of answers, which the loss is the mean over"}),
    metric(&StepMetrics::seconds, {.key = "seconds",
                                   .unit = Unit::seconds,
                                   .combine = Combine::mean,
                                   .meaning = "since the previous step ended"}),
    metric(&StepMetrics::busy_seconds, {.key = "busy_seconds",
                                        .unit = Unit::seconds,
                                        .combine = Combine::not_written,
                                        .meaning = "of these, not waiting"}),
    metric(&StepMetrics::tokens_per_second,
           {.key = "tokens_per_second",
            .unit = Unit::tokens_per_second,
            .combine = Combine::derived,
            .meaning = "tokens / seconds; 0 without tokens",
            .label = {4, "", " tok/s"},
            .status = Status::watch,
            .chart = {3, "Tokens per second"}},
           tokens_per_second),
    metric(&StepMetrics::bytes_forward, {.key = "bytes_forward",
                                         .unit = Unit::bytes,
                                         .meaning = "sent on links of activations, with framing"}),
    metric(&StepMetrics::bytes_backward, {.key = "bytes_backward",
                                          .unit = Unit::bytes,
                                          .meaning = "sent on links of gradients, with framing"}),
    metric(&StepMetrics::bytes_sync, {.key = "bytes_sync",
                                      .unit = Unit::bytes,
                                      .meaning = "sent between replicas, with framing"}),
    metric(&StepMetrics::bytes_tied,
           {.key = "bytes_tied",
            .unit = Unit::bytes,
            .meaning = "rows of a tied table between its two stages, with framing"}),
    metric(&StepMetrics::update_seconds,
           {.key = "update_seconds",
            .unit = Unit::seconds,
            .combine = Combine::max,
            .meaning = "from the last gradient to the updated weights, without waits"}),
    metric(&StepMetrics::encode_seconds, {.key = "encode_seconds",
                                          .unit = Unit::seconds,
                                          .combine = Combine::max,
                                          .meaning = "of what is sent over boundaries"}),
    metric(&StepMetrics::decode_seconds, {.key = "decode_seconds",
                                          .unit = Unit::seconds,
                                          .combine = Combine::max,
                                          .meaning = "of what is received over boundaries"}),
    metric(&StepMetrics::tied_wait_seconds,
           {.key = "tied_wait_seconds",
            .unit = Unit::seconds,
            .combine = Combine::max,
            .meaning = "the first stage waited for values of a tied table"}),
    metric(&StepMetrics::checkpoint_seconds,
           {.key = "checkpoint_seconds",
            .unit = Unit::seconds,
            .combine = Combine::max,
            .meaning = "training stood still for the checkpoint before this step"}),
    metric(&StepMetrics::memory_bytes,
           {.key = "memory_bytes",
            .unit = Unit::bytes,
            .combine = Combine::each,
            .meaning = "the most that the process has had in memory so far"}),
    metric(&StepMetrics::program_bytes,
           {.key = "program_bytes",
            .unit = Unit::bytes,
            .combine = Combine::each,
            .meaning = "of these, pages of files, and what it had before it made its layers"}),
    metric(&StepMetrics::gpu_memory_bytes,
           {.key = "gpu_memory_bytes",
            .unit = Unit::bytes,
            .combine = Combine::each,
            .meaning = "the most that its tensors have taken on its GPU so far; 0 on a CPU"}),
    metric(&StepMetrics::gpu_busy,
           {.key = "gpu_busy",
            .unit = Unit::share,
            .combine = Combine::each,
            .meaning = "of the last seconds, with its GPU busy; 0 where the driver does not say",
            .label = {6, "GPU ", "", /*hides_zero=*/true}}),
    metric(&StepMetrics::gpu_celsius,
           {.key = "gpu_celsius",
            .combine = Combine::each,
            .meaning = "of its GPU, by the driver; 0 where it does not say"}),
    metric(&StepMetrics::useful_flops, {.key = "useful_flops", .combine = Combine::not_written}),
    metric(&StepMetrics::peak_flops, {.key = "peak_flops", .combine = Combine::not_written}),
    metric(&StepMetrics::devices, {.key = "devices",
                                   .combine = Combine::sum,
                                   .meaning = "GPUs that compute, and hosts whose CPUs do"}),
    metric(&StepMetrics::tokens_per_second_per_device,
           {.key = "tokens_per_second_per_device",
            .unit = Unit::tokens_per_second,
            .combine = Combine::derived,
            .meaning = "tokens_per_second / devices"},
           tokens_per_second_per_device),
    metric(&StepMetrics::tflops,
           {.key = "tflops",
            .unit = Unit::teraflops,
            .combine = Combine::each,
            .meaning = "10¹² useful operations a second: of the model's forwards and backwards",
            .label = {7, "", " per stage", /*hides_zero=*/true},
            .status = Status::line},
           tera_flops),
    metric(&StepMetrics::mfu,
           {.key = "mfu",
            .unit = Unit::share,
            .combine = Combine::each,
            .meaning = "of its device's published peak; null where that is not known",
            .label = {8, "MFU ", "", /*hides_zero=*/true},
            .status = Status::line},
           flops_utilization),
    metric(&StepMetrics::own_cores, {.key = "own_cores", .combine = Combine::not_written}),
    metric(&StepMetrics::host_cores, {.key = "host_cores", .combine = Combine::not_written}),
    metric(&StepMetrics::router_loss,
           {.key = "router_loss",
            .combine = Combine::sum,
            .meaning = "balance loss of the routers, mean over sparse blocks and micro-batches"}),
    metric(&StepMetrics::expert_load,
           {.key = "expert_load",
            .unit = Unit::ratio,
            .combine = Combine::max,
            .meaning = "tokens of the busiest expert / mean of its block; 0 without experts"}),
    metric(&StepMetrics::idle_experts, {.key = "idle_experts",
                                        .combine = Combine::sum,
                                        .meaning = "experts that no token of the process went to"}),
    metric(&StepMetrics::skipped, {.key = "skipped",
                                   .unit = Unit::flag,
                                   .combine = Combine::any,
                                   .meaning = "no update: loss or gradient was not finite",
                                   .label = {3, "update skipped: not finite"}}),
    metric(&StepMetrics::own_rows, {.key = "own_rows", .combine = Combine::not_written}),
    metric(&StepMetrics::idle,
           {.key = "idle",
            .unit = Unit::share,
            .combine = Combine::each,
            .meaning = "bubble: share of the step spent waiting",
            .label = {5, "idle "}},
           idle_share)};

}  // namespace strait::trace

#include "launcher/planner/planned_layout.h"

#include "framework/sync/forecast.h"
#include "launcher/base/errors.h"
#include "launcher/planner/plan_load.h"
#include "launcher/planner/plan_text.h"
#include "launcher/planner/planned_boundary.h"
#include "launcher/planner/planned_cut.h"
#include "launcher/planner/planned_sync.h"
#include "launcher/planner/step_forecast.h"
#include "launcher/recipe/recipe_sync_keys.h"
#include "launcher/recipe/speeds.h"
#include "placement/search.h"
#include "stages/partition.h"
#include "stages/stage_layout.h"

namespace strait::planner {
namespace {

// Layouts that are planned in full.
constexpr std::size_t kPlanned = 8;
// Of these, the ones that are planned with each schedule.
constexpr std::size_t kPlannedByAllSchedules = 4;
// Those that a quick search returns, and its length.
constexpr std::size_t kComparedLayouts = 3;
constexpr std::int64_t kMovesOfComparison = 100'000;
// The search needs the size of a micro-batch; the plan chooses it later, for each layout by itself.
constexpr std::int64_t kMicroBatchesOfAutomatic = 16;

std::int64_t rows_of_micro_batch(const recipe::Recipe& recipe) {
  if (recipe.train.micro_batch) return *recipe.train.micro_batch;
  std::int64_t rows = 1;
  for (std::int64_t more = 1; more * kMicroBatchesOfAutomatic <= recipe.train.batch; ++more) {
    if (recipe.train.batch % more == 0) rows = more;
  }
  return rows;
}

// Its GPUs, else the slots that the recipe gives it, else one place.
std::int64_t places_of(const recipe::RecipeHost& host, const plan::Plan::Host& known) {
  if (host.slots) return *host.slots;
  return known.gpus && !known.gpus->empty() ? std::ssize(*known.gpus) : 1;
}

void add_devices(const plan::Plan& plan, placement::Problem& problem) {
  const std::vector<recipe::RecipeHost> hosts = plan::hosts_of(plan.recipe);
  for (std::size_t i = 0; i < hosts.size(); ++i) {
    const std::int64_t places = places_of(hosts[i], plan.hosts[i]);
    for (std::int64_t place = 0; place < places; ++place) {
      const plan::ComputeSpeed speed =
          plan::compute_speed(plan, i, threads_of(plan.recipe, places), places);
      placement::Device& device = problem.devices.emplace_back();
      device.host = i;
      // Layers are counted with the backward that is assumed elsewhere.
      device.flops_per_second =
          speed.flops_per_second * (1 + plan::kAssumedBackwardCost) / (1 + speed.backward);
      const auto& gpus = plan.hosts[i].gpus;
      if (gpus && !gpus->empty()) {
        device.memory_bytes =
            static_cast<double>((*gpus)[static_cast<std::size_t>(place) % gpus->size()]);
      } else if (hosts[i].memory && !plan::computes_on_gpus(plan, i)) {
        device.memory_bytes = static_cast<double>(*hosts[i].memory) / static_cast<double>(places);
      }
    }
  }
}

void add_paths(const plan::Plan& plan, placement::Problem& problem) {
  problem.hosts.resize(plan.hosts.size());
  for (std::size_t from = 0; from < plan.hosts.size(); ++from) {
    placement::Line line{0, 0};  // as stated, or as wide as its widest path
    for (std::size_t to = 0; to < plan.hosts.size(); ++to) {
      const plan::PathSpeed speed = plan::path_speed(plan, from, to);
      problem.paths.push_back({speed.bytes_per_second, from == to ? 0 : speed.seconds});
      if (from == to) continue;
      line.up_bytes_per_second = std::max(line.up_bytes_per_second, speed.uplink);
      line.down_bytes_per_second =
          std::max(line.down_bytes_per_second, plan::path_speed(plan, to, from).downlink);
    }
    if (plan.hosts.size() > 1) problem.hosts[from] = line;
  }
}

// Blocks; the embedding counts with the first one, the head with the last.
void add_layers(const plan::Plan& plan, const models::ModelDescription& model, std::int64_t tokens,
                double sync_bytes_per_value, placement::Problem& problem) {
  bool on_gpu = false;
  for (std::size_t i = 0; i < plan.hosts.size(); ++i) on_gpu |= plan::computes_on_gpus(plan, i);
  const StateBytes bytes = state_bytes(plan.recipe, on_gpu);
  const int last = static_cast<int>(std::ssize(model.layers)) - 1;
  problem.layers.resize(static_cast<std::size_t>(last - 1));
  for (int i = 0; i <= last; ++i) {
    const models::LayerCost& layer = model.layers[static_cast<std::size_t>(i)];
    const schedules::ChunkCost cost =
        chunk_cost(model, {i, i}, tokens, {1, plan::kAssumedBackwardCost, false});
    const auto frozen = layer.parameters - layer.trained - layer.quantized.parameters;
    placement::Layer& block =
        problem.layers[static_cast<std::size_t>(std::clamp(i, 1, last - 1) - 1)];
    block.flops += cost.forward_seconds + cost.backward_seconds;
    block.state_bytes += static_cast<double>(layer.trained * bytes.trained + layer.quantized.bytes +
                                             frozen * bytes.frozen);
    block.saved_bytes += static_cast<double>(layer.saved_bytes_per_token * tokens);
    block.sync_bytes += static_cast<double>(layer.trained) * sync_bytes_per_value;
  }
}

// What replicas exchange for each value, how often, and what of it a step waits for. With "auto"
// the method that sends least: what a layout costs with the chosen one, its plan says.
void add_sync(const plan::Plan& plan, const models::ModelDescription& model,
              placement::Problem& problem, double& bytes_per_value) {
  const sync::Layout layout =
      stages::stage_layout(model, {{0, static_cast<int>(std::ssize(model.layers)) - 1}});
  const std::string chosen = recipe::sync_method_of(plan.recipe);
  if (chosen.empty()) return;  // there is one replica
  std::vector<std::string> methods{chosen};
  if (chosen == recipe::kAutomaticSync) methods = sync::method_names();
  std::optional<sync::Forecast> least;
  for (const std::string& method : methods) {
    const sync::Forecast one =
        sync::forecast(sync_settings(plan.recipe, method, plan.steps), layout, 2);
    if (least && one.step_bytes >= least->step_bytes) continue;
    least = one;
    problem.rounds = one.round_bytes > 0 ? std::min(one.step_bytes / one.round_bytes, 1.0) : 1;
    problem.agrees_each_step = !trains_apart(plan, method);
  }
  problem.sync_overlaps = least->staleness > 0;
  bytes_per_value = least->step_bytes / static_cast<double>(layout.size());
}

placement::Problem problem_of(const plan::Plan& plan, const PipelineQuestion& question) {
  const recipe::Recipe& recipe = plan.recipe;
  const std::int64_t rows = rows_of_micro_batch(recipe);
  placement::Problem problem;
  problem.micro_batches = recipe.train.batch / rows;
  add_devices(plan, problem);
  add_paths(plan, problem);
  double sync_bytes_per_value = 0;
  add_sync(plan, question.model, problem, sync_bytes_per_value);
  add_layers(plan, question.model, rows * recipe.data.row, sync_bytes_per_value, problem);
  const BoundaryBytes bytes =
      boundary_bytes(recipe.codec, {.width = question.model.hidden,
                                    .rows = rows,
                                    .tokens_per_row = static_cast<double>(recipe.data.row)});
  const bool repeats = plan.steps > plan.epoch_steps;
  problem.forward_bytes = repeats ? bytes.known_forward : bytes.first_forward;
  problem.backward_bytes = bytes.backward;
  if (!recipe.pipeline.choose_stages) problem.stages = static_cast<int>(recipe.pipeline.stages);
  if (!recipe.pipeline.choose_replicas) {
    problem.replicas = static_cast<int>(recipe.pipeline.replicas);
  }
  return problem;
}

// The recipe with this layout in place of "auto".
recipe::Recipe with_layout(const plan::Plan& plan, const placement::Problem& problem,
                           const placement::Layout& layout) {
  recipe::Recipe recipe = plan.recipe;
  recipe::Recipe::Pipeline& pipeline = recipe.pipeline;
  pipeline.choose_stages = false;
  pipeline.choose_replicas = false;
  pipeline.stages = layout.stages;
  pipeline.replicas = layout.replicas;
  if (stores_on_hosts(recipe.hosts.backend)) {
    for (const std::size_t device : layout.devices) {
      pipeline.hosts.push_back(plan.hosts[problem.devices[device].host].name);
    }
  }
  const bool even = pipeline.partition.kind == recipe::PartitionKind::balanced;
  if (even && layout.stages > 1 && chunks_of(recipe) == 1) {
    pipeline.partition.kind = recipe::PartitionKind::ranges;
    for (const auto& [first, end] : layout.cut) {
      pipeline.partition.ranges.emplace_back(first, end - 1);
    }
  }
  return recipe;
}

// A layout that is planned in full.
struct Candidate {
  recipe::Recipe recipe;
  plan::Layout summary;
  const PipelineQuestion* question;
};

// `refusal`: why there is none, without what to do about it.
std::optional<Candidate> candidate_of(const plan::Plan& plan, const PipelineQuestion& question,
                                      recipe::Recipe recipe, std::string* refusal = nullptr) {
  try {
    plan::Plan whole = plan;
    whole.recipe = std::move(recipe);
    take(question, whole.recipe);
    recipe::Recipe resolved = by_cost(whole.recipe);
    resolved.train.micro_batch = micro_batch_rows(whole, question);
    plan_pipeline(whole, resolved, question);
    plan::Layout summary = layout_of(whole);
    return Candidate{std::move(whole.recipe), std::move(summary), &question};
  } catch (const stages::PartitionError& error) {
    if (refusal != nullptr) *refusal = error.what();
  } catch (const base::UserError& error) {
    if (refusal != nullptr) *refusal = error.what();
  }
  if (refusal != nullptr) refusal->erase(std::min(refusal->find(';'), refusal->size()));
  return std::nullopt;
}

// The layouts that the recipe allows, in full, the most promising first.
void add_layouts(const plan::Plan& plan, const PipelineQuestion& question,
                 const placement::SearchOptions& options, std::size_t most,
                 std::vector<Candidate>& candidates) {
  const placement::Problem problem = problem_of(plan, question);
  std::size_t planned = 0;
  for (const placement::Choice& choice : placement::search(problem, options)) {
    if (planned == most) break;
    auto candidate = candidate_of(plan, question, with_layout(plan, problem, choice.layout));
    if (!candidate) continue;
    candidates.push_back(std::move(*candidate));
    ++planned;
  }
}

void sort_by_step(std::vector<Candidate>& candidates) {
  std::ranges::stable_sort(candidates, {},
                           [](const Candidate& one) { return one.summary.step_seconds; });
}

// Puts the fastest schedule of the best layouts in place of the one that each was planned with. The
// rows of a micro-batch stay: to choose them for each schedule takes several times as long.
void choose_schedules(const plan::Plan& plan, std::vector<Candidate>& candidates) {
  sort_by_step(candidates);
  const bool cut_by_speed = plan.recipe.pipeline.partition.kind == recipe::PartitionKind::balanced;
  const std::size_t most = std::min(candidates.size(), kPlannedByAllSchedules);
  for (Candidate& best : std::span(candidates).first(most)) {
    for (recipe::Recipe& recipe : with_schedules(best.recipe, cut_by_speed)) {
      recipe.train.micro_batch = best.summary.micro_batch;
      auto other = candidate_of(plan, *best.question, std::move(recipe));
      if (!other || other->summary.step_seconds * kSameStep >= best.summary.step_seconds) continue;
      best = std::move(*other);
    }
  }
}

// Among steps of about the same length: fewer processes.
void put_chosen_first(std::vector<Candidate>& candidates) {
  sort_by_step(candidates);
  const double shortest = candidates.front().summary.step_seconds;
  const auto same = std::ranges::find_if(candidates, [&](const Candidate& one) {
    return one.summary.step_seconds > kSameStep * shortest;
  });
  const auto processes = [](const Candidate& one) {
    return one.summary.stages * one.summary.replicas;
  };
  const auto chosen = std::min_element(
      candidates.begin(), same,
      [&](const auto& one, const auto& other) { return processes(one) < processes(other); });
  std::rotate(candidates.begin(), chosen, chosen + 1);
}

}  // namespace

bool knows_links(const plan::Plan& plan) {
  const auto states_line = [](const auto& host) { return host.uplink_megabits.has_value(); };
  return !plan.speeds.links.empty() || plan.recipe.hosts.link_megabits ||
         std::ranges::any_of(plan.recipe.hosts.list, states_line);
}

std::string plan_layout(plan::Plan& plan, std::span<const PipelineQuestion> questions) {
  const recipe::Recipe asked = plan.recipe;
  const bool chooses_schedule = std::exchange(plan.recipe.pipeline.choose_schedule, false);
  plan.recipe.model.choose_recompute = false;
  plan.recipe.train.choose_moments = plan.recipe.train.choose_offload = false;
  std::vector<Candidate> candidates;
  std::string refusal;
  for (const PipelineQuestion& question : questions) {
    if (!candidates.empty()) {
      const PipelineQuestion& fits = *candidates.front().question;
      // Over fewer hosts off-load may be faster; in a stated layout it is what costs most.
      const bool same = fits.offload == question.offload ||
                        (chooses_shape(plan.recipe) && question.offload != recipe::Offload::disk);
      if (fits.moments != question.moments || !same) continue;
    }
    if (chooses_shape(plan.recipe)) {
      add_layouts(plan, question, {.threads = 0}, kPlanned, candidates);
      if (candidates.empty()) refusal = "no layout fits into the memory of these hosts";
    } else if (auto stated = candidate_of(plan, question, plan.recipe, &refusal)) {
      candidates.push_back(std::move(*stated));
    }
  }
  if (candidates.empty()) {
    // What is wrong with a stated layout its plan says.
    take(questions.back(), plan.recipe);
    if (!chooses_shape(plan.recipe)) return "";
    throw base::UserError(
        base::ExitCode::out_of_memory,
        "no layout of the model over these hosts fits into their memory; give it more hosts, or "
        "set stages, replicas and train.micro_batch to see what is missing");
  }
  if (chooses_schedule) choose_schedules(plan, candidates);
  put_chosen_first(candidates);
  plan.recipe = std::move(candidates.front().recipe);
  for (Candidate& candidate : candidates) plan.layouts.push_back(std::move(candidate.summary));
  const std::string taken = taken_text(asked, plan.recipe);
  if (taken.empty()) return "";
  if (refusal.empty()) return fmt::format("the plan takes {}: a step is shorter so", taken);
  return fmt::format("the plan takes {} for memory; with less, {}", taken, refusal);
}

std::vector<plan::Layout> quick_layouts(const plan::Plan& open, const PipelineQuestion& question) {
  std::vector<Candidate> candidates;
  if (chooses_shape(open.recipe)) {
    add_layouts(open, question, {.moves = kMovesOfComparison, .threads = 0}, kComparedLayouts,
                candidates);
  } else if (auto stated = candidate_of(open, question, open.recipe)) {
    candidates.push_back(std::move(*stated));
  }
  sort_by_step(candidates);
  std::vector<plan::Layout> layouts;
  layouts.reserve(candidates.size());
  for (Candidate& candidate : candidates) layouts.push_back(std::move(candidate.summary));
  return layouts;
}

void compare_layouts(plan::Plan& plan, plan::Plan open, const PipelineQuestion& question) {
  if (!stores_on_hosts(plan.recipe.hosts.backend) || plan.hosts.size() < 2) return;
  if (question.before != nullptr || !knows_links(plan)) return;
  recipe::Recipe::Pipeline& pipeline = open.recipe.pipeline;
  pipeline.choose_stages = pipeline.choose_replicas = true;
  pipeline.hosts.clear();
  pipeline.rows.reset();
  pipeline.partition = {};
  std::vector<plan::Layout> layouts = quick_layouts(open, question);
  plan::Layout own = layout_of(plan);
  if (layouts.empty() || own.step_seconds < kClearlySlower * layouts.front().step_seconds) return;
  plan.layouts.push_back(std::move(own));
  std::ranges::move(layouts, std::back_inserter(plan.layouts));
}

}  // namespace strait::planner

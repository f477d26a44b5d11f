#include "launcher/planner/planned_layout.h"

#include "launcher/base/errors.h"
#include "launcher/planner/plan_load.h"
#include "launcher/planner/plan_text.h"
#include "launcher/planner/planned_cut.h"
#include "placement/search.h"
#include "stages/partition.h"

namespace strait::planner {
namespace {

// Layouts that are planned in full.
constexpr std::size_t kPlanned = 8;
// Of these, the ones that are planned with each schedule.
constexpr std::size_t kPlannedByAllSchedules = 4;
// Those that a quick search returns, and its length.
constexpr std::size_t kComparedLayouts = 3;
constexpr std::int64_t kMovesOfComparison = 100'000;

// The recipe with these stages and replicas, on hosts in their order.
recipe::Recipe with_shape(const plan::Plan& plan, const placement::Layout& layout) {
  recipe::Recipe recipe = plan.recipe;
  recipe.pipeline.choose_stages = false;
  recipe.pipeline.choose_replicas = false;
  recipe.pipeline.stages = layout.stages;
  recipe.pipeline.replicas = layout.replicas;
  return recipe;
}

// The recipe with this layout in place of "auto".
recipe::Recipe with_layout(const plan::Plan& plan, const placement::Problem& problem,
                           const placement::Layout& layout) {
  recipe::Recipe recipe = with_shape(plan, layout);
  recipe::Recipe::Pipeline& pipeline = recipe.pipeline;
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

// Puts the layout that a recipe states by its numbers alone in place of `best`, if it is faster:
// the search counts less than a plan does.
void take_listed_order(const plan::Plan& plan, const PipelineQuestion& question,
                       const placement::Layout& layout, Candidate& best) {
  recipe::Recipe recipe = with_shape(plan, layout);
  recipe.train.micro_batch = best.summary.micro_batch;
  auto listed = candidate_of(plan, question, std::move(recipe));
  if (!listed || listed->summary.step_seconds >= best.summary.step_seconds) return;
  best = std::move(*listed);
  if (stores_on_hosts(plan.recipe.hosts.backend)) best.recipe.pipeline.hosts = best.summary.hosts;
}

// The layouts that the recipe allows, in full, the most promising first.
void add_layouts(const plan::Plan& plan, const PipelineQuestion& question,
                 const placement::SearchOptions& options, std::size_t most,
                 std::vector<Candidate>& candidates) {
  const placement::Problem problem = layout_problem(plan, question);
  std::size_t planned = 0;
  for (const placement::Choice& choice : placement::search(problem, options)) {
    if (planned == most) break;
    auto candidate = candidate_of(plan, question, with_layout(plan, problem, choice.layout));
    if (!candidate) continue;
    if (choice.layout.devices.size() > 1) {
      take_listed_order(plan, question, choice.layout, *candidate);
    }
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

#pragma once

#include "launcher/planner/planned_pipeline.h"
#include "launcher/recipe/plan.h"
#include "launcher/recipe/recipe.h"
#include "placement/problem.h"

namespace strait::planner {

// Another layout is named where the stated one takes at least this many times as long.
inline constexpr double kClearlySlower = 1.25;
// Forecasts are not more precise than this.
inline constexpr double kSameStep = 1.02;

// Rows of a micro-batch: from the recipe, else from the run that is resumed (its bits depend on
// them), else chosen by forecasts.
std::int64_t micro_batch_rows(const plan::Plan& plan, const PipelineQuestion& question);

// Whether the rows of each replica are to be chosen: the recipe leaves them open, and its sync
// method allows unequal ones.
bool leaves_rows_open(const recipe::Recipe& recipe);
// The rows of the run that is resumed, because the order of its samples depends on them. Nullopt:
// there is none, or it has other replicas, hosts or batches. `hosts` of the processes.
std::optional<std::vector<std::int64_t>> rows_kept_from(const plan::Plan& plan,
                                                        const recipe::Recipe& resolved,
                                                        std::span<const std::size_t> hosts,
                                                        const plan::Plan* before);
// Sets the rows of each replica; `rows` is empty if all have the same.
void set_rows(plan::Plan& plan, std::vector<std::int64_t> rows, std::int64_t micro_batch);

// The recipe with "balanced" instead of "profile", which needs measured layers.
recipe::Recipe by_cost(recipe::Recipe recipe);

// The recipe of a layout with each other schedule of this build. With several chunks a stage their
// layers are cut alike if they were `cut_by_speed`.
std::vector<recipe::Recipe> with_schedules(const recipe::Recipe& recipe, bool cut_by_speed);

// Seconds of a step of this pipeline. Nullopt: there is none, usually because memory is too small.
std::optional<double> seconds_of_step(plan::Plan plan, const recipe::Recipe& resolved,
                                      const PipelineQuestion& question);

// Whether the recipe leaves stages or replicas to be chosen.
bool chooses_shape(const recipe::Recipe& recipe);
// Whether the recipe leaves stages, replicas, schedule or what saves memory to be chosen.
bool chooses_layout(const recipe::Recipe& recipe);

// Chooses what the recipe of `plan` leaves open: stages and replicas, and with them the hosts of
// all processes, without hosts that are left out, and their layers; the schedule with its chunks,
// depth and rows of a micro-batch; recompute, moments and off-load. Replaces "auto" in the plan's
// recipe by what was chosen, which is what a resume reads, and keeps the best layouts in
// `plan.layouts`. But for moments of fewer bits none of these choices changes what is learnt. The
// plan has its data, hosts and speeds. `questions`: what may be taken to save memory, in order of
// cost. Moments lose bits only where nothing fits before, and a stated layout is off-loaded only
// then; among the others the shortest step wins.
// Returns what was taken and why; empty: nothing was. UserError: no layout fits.
//
// placement::search() proposes layouts by a simple cost; the best ones are planned in full, and so
// are their stages and replicas on hosts as listed. The shortest forecast step wins. Among steps of
// about the same length the one with fewer processes.
std::string plan_layout(plan::Plan& plan, std::span<const PipelineQuestion> questions);

// What the search for a layout is asked. `plan` has its hosts and speeds.
placement::Problem layout_problem(const plan::Plan& plan, const PipelineQuestion& question);

// `plain` and `recomputing` with all that the recipe of `plan` lets it take, for plan_layout().
std::vector<PipelineQuestion> memory_questions(const plan::Plan& plan,
                                               const PipelineQuestion& plain,
                                               const PipelineQuestion& recomputing);

void take(const PipelineQuestion& question, recipe::Recipe& recipe);
// "model.recompute = "layer" and train.offload = "optimizer"": what was taken to save memory.
std::string taken_text(const recipe::Recipe& asked, const recipe::Recipe& chosen);

// The fastest layouts that the recipe of `open` allows, by a short search, the best first. Empty:
// no layout fits. `open`: the plan before its layout.
std::vector<plan::Layout> quick_layouts(const plan::Plan& open, const PipelineQuestion& question);

// Whether the recipe or measurements say how fast the paths between hosts are.
bool knows_links(const plan::Plan& plan);

// Where the recipe states the layout, but another one over hosts whose links are known is clearly
// faster by the forecast: adds both to `plan.layouts`. `open`: the plan before its pipeline.
void compare_layouts(plan::Plan& plan, plan::Plan open, const PipelineQuestion& question);

}  // namespace strait::planner

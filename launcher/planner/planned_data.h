#pragma once

#include <string>

#include "launcher/plan/plan.h"
#include "launcher/planner/plan_maker.h"
#include "launcher/recipe/recipe.h"
#include "models/model_description.h"

namespace strait::planner {

// kByteTokenizer or the directory of the recipe's tokenizer: the one that it names, else the
// model's own, else bytes.
std::string tokenizer_of(const recipe::Recipe& recipe);
// Without what data.hold_out says, which is for data.train only.
data::DataOptions data_options(const recipe::Recipe& recipe);

// The command that prepares a data file with these options, and to which flags may be added.
std::string prepare_command(const std::string& source, const data::DataOptions& options);

// UserError: a token is beyond the model's vocabulary, or none of them is a target.
void check_tokens(const recipe::Recipe& recipe, const models::ModelDescription& model,
                  const data::PreparedData& data);

// Reads the rows to train on and to evaluate, checks them against the model, and writes into the
// plan what it says of them: files and steps. `before`: the plan of a run that goes on; its own
// token files are read instead of the recipe's sources. Null: the run begins. UserError: a file is
// missing, of another tokenizer, or does not fit the model or the batch.
void read_data_sets(PlannedRun& run, const recipe::Recipe& recipe,
                    const models::ModelDescription& model, const plan::Plan* before);

// Where the warm-up is made for a longer run, so that no step has the learning rate that is asked
// for: says so. Else empty.
std::string long_warmup_note(const plan::Plan& plan);

}  // namespace strait::planner

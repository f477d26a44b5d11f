#pragma once

#include "launcher/planner/plan_maker.h"
#include "launcher/recipe/plan.h"
#include "launcher/recipe/recipe.h"
#include "launcher/tokenizer/tokenizer_worker.h"
#include "models/model_description.h"

namespace strait::planner {

// kByteTokenizer or the directory of the recipe's tokenizer: the one that it names, else the
// model's own, else bytes.
std::string tokenizer_of(const recipe::Recipe& recipe);
// How its tokenizer is opened: with data.chat_template.
tokenizer::PythonTokenizers tokenizers_of(const recipe::Recipe& recipe);
// The options for both data sets. data.hold_out, which applies to data.train only, is left out.
data::DataOptions data_options(const recipe::Recipe& recipe);

// The command that prepares a data file with these options. Flags may be appended.
std::string prepare_command(const std::string& source, const data::DataOptions& options);

// UserError: a token is outside of the model's vocabulary, or no token is a target.
void check_tokens(const recipe::Recipe& recipe, const models::ModelDescription& model,
                  const data::PreparedData& data);

// Steps of the run, and of an epoch, by the replicas of the plan's recipe. read_data_sets() calls
// it; call it again when replicas have been chosen. UserError: train.batch does not fit.
void count_steps(plan::Plan& plan, const data::PreparedData& train);

// Reads the rows for training and evaluation, checks them against the model, and writes files and
// steps into the plan. `before`: the plan of a run that resumes, whose own token files are read
// instead of the recipe's sources; null: the run begins. UserError: a file is missing, comes from
// another tokenizer, or does not fit the model or the batch.
void read_data_sets(PlannedRun& run, const recipe::Recipe& recipe,
                    const models::ModelDescription& model, const plan::Plan* before);

// A note if the warm-up is longer than the run, so that no step reaches the learning rate of the
// recipe. Else empty.
std::string long_warmup_note(const plan::Plan& plan);

}  // namespace strait::planner

#pragma once

#include "launcher/plan/plan.h"

namespace strait::planner {

// What a recipe's [sync] may say only if all of it and the run's length go together; keys by
// themselves were looked at when the recipe was read. UserError (bad_input) with the keys, what
// they are, where that was said, and what to do. Where "auto" chooses there is nothing to check.
void check_sync_settings(const plan::Plan& plan);

// The same of `sync.on_loss` with the method that the plan has, asked for or chosen.
void check_loss_rule(const plan::Plan& plan);

}  // namespace strait::planner

#pragma once

#include "launcher/recipe/plan.h"

namespace strait::planner {

// What `strait plan` prints: the model and the schedule, then tables of processes, links, caches
// and sync methods, for a screen of that width (base::table_lines), then the forecast of a step.
std::string plan_text(const plan::Plan& plan, std::size_t columns = 0);

// The layout that "auto" chose, or that the recipe states, and the next best ones. Empty: the
// recipe states it, and no other is clearly faster.
std::string layout_table(const plan::Plan& plan, std::size_t columns);

// "2 stages, 1 replica: a 16, c 12; zero_bubble, depth 2, 4 rows".
std::string layout_text(const plan::Layout& layout);

// One sentence if the recipe states a layout that is clearly slower than another one. Else empty.
std::string slower_layout_note(const plan::Plan& plan);

// "0.223 s", "12 min", "4.1 h", "26 days".
std::string text_of_seconds(double seconds);
// Of a forecast of this plan: with one digit where speeds are assumed.
std::string forecast_seconds(const plan::Plan& plan, double seconds);
std::string forecast_number(const plan::Plan& plan, double number);

// An assumed figure.
double one_digit(double value);

// What is off-loaded, to where, and the seconds that it takes; no speed of these is measured.
// Empty: nothing is.
std::string offload_text(const plan::Plan& plan);

// Its last lines: how long a step and all steps take, and with which speeds.
std::string forecast_text(const plan::Plan& plan);

}  // namespace strait::planner

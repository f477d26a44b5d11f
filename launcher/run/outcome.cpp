#include "launcher/run/outcome.h"

#include <nlohmann/json.hpp>

namespace strait::run {

nlohmann::ordered_json to_json(const Outcome& outcome) {
  using Json = nlohmann::ordered_json;
  const bool saved = outcome.stopped && outcome.code == base::ExitCode::done;
  const char* meaning = saved ? "stopped" : base::meaning(outcome.code);
  return {{"code", number(outcome.code)},
          {"meaning", meaning ? meaning : ""},
          {"cause", outcome.cause},
          {"culprit", outcome.culprit ? Json(outcome.culprit->text()) : Json(nullptr)},
          {"host", outcome.host},
          {"log_tail", outcome.log_tail},
          {"followers", outcome.followers},
          {"stopped", outcome.stopped},
          {"step", store::number(outcome.step)},
          {"checkpoint",
           outcome.checkpoint ? Json(store::number(*outcome.checkpoint)) : Json(nullptr)}};
}

}  // namespace strait::run

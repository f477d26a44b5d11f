#include "launcher/control/sync_step.h"

#include <nlohmann/json.hpp>

namespace strait::control {

nlohmann::ordered_json to_json(const SyncStep& step) {
  return {{"process", step.process},
          {"rounds", step.rounds},
          {"sent_bytes", step.sent_bytes},
          {"bfloat16_bytes", step.bfloat16_bytes},
          {"round_seconds", step.round_seconds},
          {"waited_seconds", step.waited_seconds}};
}

SyncStep sync_step_from(const nlohmann::json& object) {
  return {object.at("process"),        object.at("rounds"),        object.at("sent_bytes"),
          object.at("bfloat16_bytes"), object.at("round_seconds"), object.at("waited_seconds")};
}

}  // namespace strait::control

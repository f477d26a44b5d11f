#include "launcher/control/boundary_step.h"

#include <nlohmann/json.hpp>

namespace strait::control {
namespace {

nlohmann::ordered_json number_or_null(const std::optional<double>& value) {
  return value ? nlohmann::ordered_json(*value) : nlohmann::ordered_json(nullptr);
}

std::optional<double> number_in(const nlohmann::json& value) {
  return value.is_null() ? std::nullopt : std::optional(value.get<double>());
}

}  // namespace

nlohmann::ordered_json to_json(const BoundaryStep& step) {
  return {{"boundary", step.boundary},
          {"direction", step.direction},
          {"raw_bytes", step.raw_bytes},
          {"sent_bytes", step.sent_bytes},
          {"change", number_or_null(step.change)},
          {"error", number_or_null(step.error)},
          {"cache_bytes", step.cache_bytes},
          {"hits", step.hits},
          {"first_visits", step.first_visits},
          {"evictions", step.evictions},
          {"resends", step.resends}};
}

BoundaryStep boundary_step_from(const nlohmann::json& object) {
  BoundaryStep step;
  step.boundary = object.at("boundary");
  step.direction = object.at("direction");
  step.raw_bytes = object.at("raw_bytes");
  step.sent_bytes = object.at("sent_bytes");
  step.change = number_in(object.at("change"));
  step.error = number_in(object.at("error"));
  step.cache_bytes = object.at("cache_bytes");
  step.hits = object.at("hits");
  step.first_visits = object.at("first_visits");
  step.evictions = object.at("evictions");
  step.resends = object.at("resends");
  return step;
}

}  // namespace strait::control

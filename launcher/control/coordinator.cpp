#include "launcher/control/coordinator.h"

#include <utility>

#include "launcher/control/control_room.h"

namespace strait::control {

Coordinator::Coordinator(std::vector<Station> stations, CoordinatorOptions options,
                         std::vector<RunObserver*> observers)
    : control_(std::make_unique<ControlRoom>(std::move(stations), std::move(options),
                                             std::move(observers))) {}
Coordinator::~Coordinator() = default;

Outcome Coordinator::run(const std::atomic<int>& stops) { return control_->run(stops); }

}  // namespace strait::control

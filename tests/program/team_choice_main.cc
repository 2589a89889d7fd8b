// Which share of runs goes to the team: team_choice_main ALONE TEAM SPIKE-ALONE SPIKE-TEAM RUNS FIRST. Microseconds that a
// run takes on one thread and on the team, and that one run in 200 takes; how many runs there are, and what the first
// eight take on the team.
#include <cstdio>
#include <cstdlib>
#include <random>

#include "core/team_choice.h"

int main(int, char** arguments) {
  ngraph_mxnet::TeamChoice choice;
  std::mt19937 random(1);
  const int runs = std::atoi(arguments[5]);
  const double first = std::atof(arguments[6]) * 1e-6;
  double seconds[4];
  for (int i = 0; i < 4; ++i) seconds[i] = std::atof(arguments[1 + i]) * 1e-6;
  int team = 0;
  for (int i = 0; i < runs; ++i) {
    const bool alone = choice.alone(false);
    const double noise = std::uniform_real_distribution<>(0.95, 1.05)(random);
    const double usual = seconds[(random() % 200 == 0 ? 2 : 0) + (alone ? 0 : 1)];
    choice.learn(false, alone, noise * (i < 8 && !alone ? first : usual));
    team += !alone;
  }
  std::printf("%.4f %s\n", static_cast<double>(team) / runs, choice.mostly_alone() ? "alone" : "team");
}

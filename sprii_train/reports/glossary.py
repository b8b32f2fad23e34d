"""What the words of reports mean: arms, columns, reference lines and verdicts, in one place for all tables.

A heading is looked up whole, then by its parts: `ρ drag, validation ↑` is ρ of a property, on validation systems, with
an arrow. Some words mean something else in one table or figure of the paper; `OWN` has these by its label.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

PRIMER = (
    "A system has persistent properties: numbers that stay fixed over all of its episodes, such as the mass of a ball, "
    "the drag of a fluid or the habits of a partner. They are not observed, but a history, a recorded stretch of an "
    "episode, can tell of them. An encoder turns a history into a context (also: code), some numbers.",
    "The history that a context is read from is the donor's. Whatever is predicted with it is the recipient's, often "
    "another episode of the same system. A relation says which episodes may be donors of which. Where donor and "
    "recipient share the persistent properties and little else, these are what a context can carry over.",
    "Align is a loss that draws the contexts of donor and recipient together while keeping contexts from all becoming "
    "the same. Cross is a loss that has the recipient predicted with the donor's context. An arm is one way to "
    "train; a "
    "source is one training of an arm, with a seed of its own. A reader is a small network that is fitted afterwards "
    "on frozen contexts, a probe is a regression that reads a property off them. ± is the standard deviation over "
    "sources, n.a. a number that was not measured.",
)
"""What someone needs who has read nothing else."""

VERDICTS = (
    ("held", "The number and its interval lie within the bounds that were written down for the statement."),
    ("did not hold", "The number and its interval lie beyond one of the bounds: evidence against the statement."),
    ("not resolved", "The interval spans a bound, or sources disagree: no evidence either way. More sources may tell."),
    ("not tested", "This run lacks an arm or a number that the statement needs, or its budget is no test of it."),
    (
        "without information",
        "What a learner would score whose contexts say nothing. A statement that such a learner also meets is "
        "not held.",
    ),
)

_RELATED = "donor and recipient are different episodes of one system"

ARMS: dict[str, str] = {
    # objectives
    "Native": "Prediction alone, without a separate context: one network reads history and present together.",
    "Structure": "A separate context, trained by prediction alone from the window's own history: no Align, no Cross.",
    "Same-rollout alignment": "Align, with another window of the same episode as donor.",
    "Align": f"Prediction and Align: {_RELATED}.",
    "Cross": f"Prediction and Cross: {_RELATED}.",
    "Align + Cross": f"Prediction, Align and Cross (SPRII): {_RELATED}.",
    "Align–Random": "Align with donors of other systems: what an arm has over it, the relation gave.",
    "Supervised γ": "The context is trained to tell the true property: more than any other arm is told.",
    "Supervised split": "Structure's networks, trained on true increments of the state in place of embeddings.",
    "Supervised drag": "Structure, its context trained to tell the true drag too: more than any other arm is told.",
    "SPRII": "The method under test: Align, Cross or both between related histories, as the setting says.",
    "Random": "The terms of SPRII with unrelated donors: what SPRII has over it, the relation gave.",
    "Joint": "Align and Cross together.",
    # relations on PokeWorld
    "G₁": "Align between histories of the same mass, another drag and another stiffness.",
    "G₂": "Align between histories of the same mass and drag, another stiffness.",
    "G₃": "Align between histories of the same mass, drag and stiffness: the complete relation.",
    # a frozen stem of pixels
    "Frozen stem": "The encoder of frames that all arms of a source share: trained once, without any relation, and "
    "then left as it is.",
    "few updates": "A short training, beside its twin.",
    "frozen stem": "The encoder of frames stays as the pretext task has left it.",
    "end to end": "Begins with the source's stem and trains it too, as the paper trains its own from the start.",
    # mismatches on PokeWorld
    "Random mismatch": "As G₃, but half of the donors are of random other systems.",
    "Drag-only mismatch": "As G₃, but half of the donors differ in drag alone.",
    "Mass-only mismatch": "As G₃, but half of the donors differ in mass alone.",
    "Correct": "The complete, correct relation: donors share every property.",
    "True": "The true relation, from the simulator's properties.",
    "Inferred": "Donors are neighbours among the codes of a trained Structure: no property is known.",
    "RandomHistory": "Donors are drawn from all histories: the inferred relation's control.",
    "Same-rollout donors": "Donors are earlier windows of the recipient's own episode.",
    "Independent donors": "Donors are earlier windows of another episode of the recipient's system.",
    "Same rollout": "Donors are earlier windows of the recipient's own episode.",
    "Independent": "Donors are windows of another episode of the recipient's system.",
    "Rel-InfoNCE": "A contrastive loss over the relation in place of Align.",
    "Monolithic JEPA": "Native: prediction alone, without a separate context.",
    # other learners
    "JEPA": "A learner that predicts embeddings of later observations from earlier ones.",
    "JEPA J2": "The JEPA with half the updates and a smaller weight of Cross.",
    "J2": "The JEPA with half the updates and a smaller weight of Cross.",
    "CPC": "A contrastive learner: it tells the true later observation from others.",
    "RSSM": "A recurrent latent model that reconstructs and predicts observations.",
    "CoPhyNet": "A graph network over objects, made for these scenes.",
    "CoPhyNet half": "CoPhyNet with half the updates.",
    "SPRII S1": "SPRII with mean codes of several donors, other weights, and the best epoch kept.",
    "CaDM": "A context-aware dynamics model: an ensemble that predicts the next state from a short history's context.",
    "Linear": "A dynamics model that is linear in its context.",
    "FCRL": "A contrastive learner of functions: two views of one system's data are told from those of others.",
    "FCRL-style temporal": "A contrastive learner over stretches of time.",
    "NOD": "A neural operator decoder with a code of another trajectory of the system.",
    "NOD on states": "The neural operator decoder on states in place of fields.",
    "Released-default NOD": "The operator as its authors release it, trained by prediction alone.",
    "NOD released default": "The operator as its authors release it, trained by prediction alone.",
    "SPRII continued": "Align between trajectories of one system, then prediction alone from the selected checkpoint.",
    "SPRII fixed endpoint": "Align between trajectories of one system, then prediction alone for a fixed number "
    "of updates.",
    "Continued NOD": "The operator, trained by prediction alone for the same further updates.",
    "Random continued": "As SPRII, continued, with trajectories of other systems.",
    "Random continuation": "As SPRII, continued, with trajectories of other systems.",
    "Random pairs": "As SPRII, with trajectories of other systems.",
    "DALI": "A learner of latent dynamics with a history encoder, trained by prediction.",
    "TDS": "Trajectory-decoupled prediction: a query is predicted with the code of another trajectory of its system.",
    "State-space TDS": "TDS on states: a query is predicted with the code of another trajectory of its system.",
    "GEPS": "An operator whose code is fitted to each case by gradient steps.",
    "CoDA": "An operator whose code is fitted to each case by gradient steps, as a hypernetwork's input.",
    "Plain": "A history encoder before a frozen decoder, trained by prediction alone.",
    "Matched Cross": "The same, also predicting with the code of another trajectory of the system.",
    "Random Cross": "The same, also predicting with the code of another system's trajectory.",
    "Duplicate Self": "The same, its own code used twice: as many losses, no other history.",
    "GRU": "A recurrent network that is told the task and trained on it.",
    "Transformer": "A Transformer that is told the task and trained on it.",
    "TCN": "A convolutional network over time that is told the task and trained on it.",
    "DeepSets": "A network of sets that is told the task and trained on it.",
    "Persistent-JEPA": "A frozen JEPA whose persistent context is updated by a segment of the system's own.",
    # control and partners
    "CaDM offline": "CaDM, trained on logged data.",
    "Properties given": "The dynamics model is given the true properties in training, and a fitted context when "
    "it acts.",
    "Linear in a fitted context": "A dynamics model that is linear in a context fitted to recent transitions.",
    "Linear in an encoder's context": "A dynamics model that is linear in the context that an encoder reads.",
    "Labels in training": "The dynamics model is given the true properties in training.",
    "Learned": "A dynamics model learned from logged episodes, which the planner plans with.",
    "Nominal equations": "The planner with the equations at nominal properties: right physics, wrong system.",
    "Oracle equations": "The planner with the true equations: what planning alone can reach.",
    "Random relation": "CaDM with Align between contexts of different systems.",
    "SPRII (R7)": "CaDM with Align between contexts of two episodes of one system.",
    "Random actions": "Actions drawn at random: the floor.",
    "True equations (oracle)": "The planner with the true equations: what planning alone can reach.",
    "Random policy": "Actions drawn at random: the floor.",
    "Nominal model": "The planner with the simulator at nominal properties: right physics, wrong system.",
    "Oracle dynamics": "The planner with the true simulator: what planning alone can reach.",
    "H": "The agent with a history of the partner, no term on contexts.",
    "H+VC": "H with the part of Align that keeps contexts apart, and without the part that pairs them.",
    "H+SPRII": "H with Align between histories of one partner.",
    "H+Random": "H with Align between histories of different partners.",
    "VC": "The part of Align that keeps contexts apart, without the part that pairs them.",
    # grasps and recordings
    "R_H: same hardness": "Donors are grasps of objects of the same hardness and another shape.",
    "R_S: same shape": "Donors are grasps of objects of the same shape and another hardness.",
    "Random configuration": "Donors are grasps of another hardness and shape.",
    "Monolithic": "One Transformer reads the donor's history and the query together: no context.",
    "Monolithic Q+D": "One Transformer reads the donor's history and the query together: no context.",
    "A+C": "Align + Cross.",
    "LD": "Low-dimensional: sensors alone, without pictures.",
    "SameEp": "Donors are of the query's own recording.",
    "Indep": "Donors are other recordings of the query's task.",
    "RH20T": "On RH20T, recordings of robots.",
}
"""Label of an arm, without what `ARM_PATTERNS` and commas add → what it is. Commas join parts: `CPC, Align`."""

ARM_PATTERNS: tuple[tuple[str, str], ...] = (
    (r"α = [\d.]+", "Align with donors of which this share is related, the others being drawn from all systems."),
    (r"λp? ?[\d.]+|λx [\d.]+|τ [\d.]+", "Weights of the loss: λp of Align, λx of Cross; τ a temperature."),
    (r"Rel-InfoNCE τ [\d.]+", "A contrastive loss over the relation in place of Align, with temperature τ."),
    (r"nce-[\d.]+-[\d.]+", "A contrastive loss over the relation in place of Align, temperature τ and weight λ."),
    (r"d = \d+", "TDS with codes of this many numbers."),
    (r"(an eighth|a quarter|half|[⅛¼½])( of its updates)?", "Weights as they were after this share of the updates."),
    (r"Masked-GRU( \(\d+\))?", "A frozen recurrent network that fills masked segments; the number is its seed."),
    (r"(Align|Cross|A\+C|LD–A\+C|LD–Cross)–(Indep|SameEp|Random)", "Terms, then donors: Indep other recordings of the "
     "task, SameEp the query's own recording, Random recordings of other tasks; A+C is Align + Cross, LD has sensors "
     "alone."),
    (r"(RH20T, )?LD–Native", "Native on sensors alone, without pictures."),
    (r"SPRII \((Cross|C|A\+C|Align \+ Cross)\)", "SPRII with the terms in parentheses: C Cross, A Align."),
    (
        r"encoder( \+ fit)?|encoder, then fit|fit|true context|trained through its fit|told the truth|true properties",
        "Where the context comes from when the model acts: an encoder reads it from the history, it is fitted "
        "to recent "
        "transitions, or it is the truth.",
    ),
    (r"(CaDM|Linear) Align \+ Cross", "This model, also trained with Align and Cross."),
    (r"(one run|across runs)", "Donors are of one run of the ego, or of several."),
    (r"Poke (G\d)", "The PokeWorld arm of that relation."),
)  # fmt: skip

REFERENCES: dict[str, str] = {
    "untrained": "The same network with its first weights. What a trained arm has over it, training gave.",
    "first weights": "The same network before any training. What a trained arm has over it, training gave.",
    "base with first weights": "The same network before any training: its gain is what the adapter alone finds.",
    "labels of training grasps dealt anew": "A probe fitted on shuffled labels: what chance scores on these systems.",
    "Labels shuffled": "A probe fitted on shuffled labels: what chance scores on these systems.",
    "fitted to other systems' Δ": "The adapter is fitted to updates of other systems: what remains is no use of "
    "one's own.",
    "constant": "The same numbers for every system, which tell nothing: an arm no better does not use its context.",
    "constant mean": "Always the training mean, whatever the history: an arm no better has read nothing.",
    "Constant code": "The mean training code for every system: an arm no better does not use its context.",
    "zero code": "A context of zeros: an arm no better does not use its context.",
    "no code": "A reader that sees the present alone.",
    "shuffled": "The context of another system. If it costs nothing, the context is not used.",
    "Shuffled donors": "Contexts of other systems, in the reader's fit too: what codes without the right system give.",
    "No learner": "A prediction that needs no training. An arm that does no better has learned little of use.",
    "persistence": "The last given state stays as it is: the error of predicting no change.",
    "the last frame stays": "The last given frame stays as it is: the error of predicting no change.",
    "the last estimated place stays": "The last estimated places stay: the error of predicting no change.",
    "the last velocity stays": "The last velocity goes on: the error of predicting no forces.",
    "the estimated velocity stays": "The last estimated velocity goes on: the error of predicting no forces.",
    "true properties for a code": "The true properties in the context's place: about the best that a context can do.",
    "Viscosity itself": "The true property in the code's place: about the best that a code can do.",
    "true (k, β) for a code": "The true properties in the code's place: about the best that a code can do.",
    "five true scales for Δ": "The true properties in place of the update: about the best that an update can do.",
    "True log γ in place of a code": "The true property in the code's place: about the best that a code can do.",
    "raw history of 40 samples": "The probe reads the recorded history itself, no code: what there is to be read.",
    "its last sample alone": "The probe reads the last sample, no history: what needs no history.",
    "another system's": "The context of another system. If it costs nothing, the context is not used.",
    "paper's": "The paper's number of the line above.",
}
"""Lines that stand beside arms → what they say of a number."""

_WRONG = "With the context of another system. If this costs nothing, contexts are not used."
_MATCHED = "With the context of a donor of the recipient's own system."
_INTERVAL = "The 95 % interval in which the number lies, as the note below says of what."
_PROPERTY = "The property that the number in this column is of; the table's title says which number."
_OF_CODES = "The codes, and with them the arm or the reference, that a line is of."

COLUMNS: dict[str, str] = {
    "": "What the line is of, or what the number before it says.",
    # what a line is of
    "Arm": "What was trained; see What is compared.",
    "Recipe": "What was trained; see What is compared.",
    "Condition": "What was trained, or which context was given; see What is compared.",
    "Track": "What was trained; see What is compared.",
    "Method": "What was trained; see What is compared.",
    "Learner": "Which learner was trained.",
    "Family": "Which learner or arm the sources are of.",
    "Row": "What acts or was trained; see What is compared.",
    "Rows": "The two rows compared: the first minus the second.",
    "Model": "What was trained; see What is compared.",
    "Objective": "Which loss was trained.",
    "Relation": "Which histories may be donors of which; see What is compared.",
    "Pairing": "How donors are paired with recipients; see What is compared.",
    "Pairs": "How donors are paired with recipients; see What is compared.",
    "Donors": "Whose history the donor's is.",
    "Donor": "Whose context is given: the own system's, or another's.",
    "Mismatch": "In which property the wrong donors differ.",
    "Codes": _OF_CODES,
    "Code of": "Whose history the code is read from.",
    "Configuration": "What was trained, on which scene.",
    "Frozen base": "The trained network whose weights stay as they are.",
    "Base and update": "The frozen network, and what is given in place of the own update.",
    "Source": "The training that a line is of: an arm, or the seed of one of its trainings.",
    "Reader": "The network that is fitted on frozen contexts to solve the task.",
    "Reader recipe": "How the reader was initialised and trained.",
    "Scene": "The simulated scene.",
    "Scene, reader recipe": "The simulated scene, and how the reader was initialised and trained.",
    "Seed": "The number that all random draws of one training follow from.",
    "Sampling seed": "The number that all random draws of one training follow from.",
    "Source seed": "The number that all random draws of one training follow from.",
    "Source recipe": "What was trained; see What is compared.",
    "Contrast": "Which two numbers are compared: the first minus the second.",
    "Comparator": "What the method is compared with.",
    "Comparison": "Which numbers are compared, or of which experiment a line is.",
    "Difference": "The first number minus the second, or what a line compares.",
    "Effect": "Which comparison the line is.",
    "Quantity": "What was counted or timed.",
    "Measurement": "What was measured.",
    "Measure": "What was measured.",
    "Metric": "Which error the line is of.",
    "Endpoint": "Which error the line is of, or the population it is of.",
    "Component": "Which part of the observation the error is of.",
    "Population": "The systems and queries that the number is of.",
    "Split": "Which systems the number is of; OOD are outside the range of training.",
    "Distribution": "Which systems the number is of: ID within the range of training, OOD outside of it.",
    "Group": "Which systems the number is of: ID within the range of training, OOD outside of it.",
    "System": "The system that a line is of, by its properties.",
    "Partner": "The partner that the agent acts with.",
    "Factor": "The persistent property.",
    "Target": "The property that the probe predicts.",
    "Probe": "The kind of regression: ridge is linear, MLP a small network.",
    "Space": "What is compared: predicted embeddings, or the state a decoder reads off them.",
    "Input": "What the network is given.",
    "Input readout": "What the probe reads.",
    "Read from": "What the probe reads.",
    "Intervention": "What is changed at fixed weights.",
    "Intervention/model": "What is changed at fixed weights, in which model.",
    "Weights": "Weights of the loss: λp of Align, λx of Cross.",
    "(λp,λx)": "Weights of the loss: of Align, of Cross.",
    "λp": "The weight of Align.",
    "λ p": "The weight of Align.",
    "λx": "The weight of Cross.",
    "λ x": "The weight of Cross.",
    "α": "Share of donors that are related; the others are drawn from all systems.",
    "Horizon": "How many steps ahead is predicted.",
    "Iteration": "The round of collecting and training.",
    "K": "Number of donor histories whose codes are averaged.",
    "Role": "What the arm is in the comparison.",
    "Whose": "Whose number it is: this run's or the paper's.",
    "Context": "Which model acts, and where its context comes from.",
    "Number": "What was measured.",
    "Wrong factor": "The property in which the wrong donor differs.",
    "Selection": "How the settings and the checkpoint were chosen.",
    "Selection rule": "How the settings and the checkpoint were chosen.",
    "Configuration and selection": "How the settings and the checkpoint were chosen.",
    "Chosen": "The training that the bounds choose.",
    "Code": "What the context is: its numbers, and how it is read.",
    "Coverage": "Share of recipients that have a donor.",
    "Numerical comparison": "The numbers compared.",
    "Finding / scope": "What was found, and of what.",
    "G₁ and G₂ of": "The sources whose difference the slope is of.",
    "Relation and budget": "Which histories may be donors of which, and for how many updates the arm was trained.",
    "True log γ": "The true property in the code's place: about the best that a code can do.",
    "Drag R² of first weights": "Share of drag's variance that a linear probe reads off untrained codes.",
    "Drag R², one history": "Share of drag's variance that a linear probe reads off the context of a single history.",
    "Simulator: its own": "The same number of the true physics.",
    "Percent": "How many percent lower the error is.",
    "Sources where it is lower": "In how many of the trainings the error is lower.",
    "Same-system donor (selects)": "With the code of another episode of the system: the error by which the size is "
    "chosen.",
    "Other system's donor": _WRONG,
    "Own history": "With the code of the window's own history.",
    "Chosen by sources": "In how many of the trainings this size has the lowest error.",
    # organisation of contexts
    "Within": "Mean squared distance of contexts of one system, over its histories.",
    "Between": "Mean squared distance of the systems' mean contexts from each other.",
    "Between/within": "Distance of contexts between systems over that within: higher separates systems more. Contexts "
    "without information have about 1 over the number of histories a system.",
    "B/W": "Between over within: how far contexts of different systems lie apart, over how far those of one system do.",
    "Ratio": "Between over within: how far contexts of different systems lie apart, over how far those of one "
    "system do. "
    "Contexts without information have about 1 over the number of histories a system.",
    "Separation": "Between over within: how far contexts of different systems lie apart, over how far those of one do.",
    "Distance ratio": "Distances between contexts of different partners over those of one partner.",
    "One partner under several names": "The same ratio where one partner has a name for each run: 1 if contexts hold "
    "the partner alone.",
    "several names": "Of the ratio where one partner has a name for each run.",
    "Geometry": "ρ of drag: how well distances of contexts follow distances of the property.",
    "PC 1": "Share of the contexts' variance along their first principal component.",
    "PC 2": "Share of the contexts' variance along their second principal component.",
    "Tuple p": "Percent of pairs that agree in every property.",
    "Donor usage": "How evenly donors are used: entropy over its largest value, 1 if all are used alike.",
    "Eligible systems": "Systems that may be drawn: with as many episodes, or donors, as the relation needs.",
    "Selected systems": "Systems among these that donors are drawn from.",
    "Rollouts/system": "Episodes of each of these systems.",
    "Supported histories": "Histories that may be a donor.",
    "Hardness across shapes": "Accuracy of reading the hardness on a shape the probe was not fitted on; chance 1/3.",
    "Shape across hardness": "Accuracy of reading the shape at a hardness the probe was not fitted on; chance 1/2.",
    "Hardness": "Accuracy of reading the hardness.",
    "Shape": "Accuracy of reading the shape.",
    "AUROC": "How well a probe tells yes from no: 0.5 is chance, 1 is always right.",
    "donors' codes": "Read from the contexts of donor histories.",
    "recipients' present features": "Read from the recipient's present, without a donor.",
    "ridge": "Read by a linear regression.",
    "MLP": "Read by a small network.",
    "centroid": "Of the mean context of a system's histories.",
    "history": "Of the context of a single history.",
    "single histories": "Of contexts of single histories.",
    "Partial ρ": "Rank correlation of distances of contexts with distances of the property, the others held fixed.",
    "Partial geometry ρ": "Rank correlation of distances of contexts with distances of the property, the others held "
    "fixed: 0 if contexts do not follow it.",
    "Probe R²": "Share of the property's variance that a linear probe reads off contexts: 0 is a constant, 1 "
    "all of it.",
    "R²": "Share of the variance of the property that is read: 0 is a constant, 1 all of it.",
    "R² finger position": "Share of its variance that a linear probe reads off the embedding of a frame.",
    "R² finger velocity": "Share of its variance that a linear probe reads off the embedding of a frame.",
    "R² object position": "Share of its variance that a linear probe reads off the embedding of a frame.",
    "R² object velocity": "Share of its variance that a linear probe reads off the embedding of a frame.",
    "Stem": "Whether the encoder of frames was frozen in that training or trained too.",
    "R²_S": "Share of the properties' variance that is read off the donors' codes: 0 is a constant, 1 all of it.",
    "R²_M": "Share of the properties' variance that is read off the reader's memory: 0 is a constant, 1 all of it.",
    "source U": "Read from the code of one history.",
    "support S": "Read from the mean code of the given histories.",
    "memory M": "Read from the reader's own memory of the histories.",
    # errors by whose context it is
    "MSE": "Mean squared error: lower is better.",
    "Error": "Mean squared error: lower is better.",
    "Dev. MSE": "Mean squared error on development systems: lower is better.",
    "Matched": _MATCHED,
    "Matched MSE": "Mean squared error with the context of the recipient's own system.",
    "Matched relative L2": "Error over the size of the target, with the context of the recipient's own system.",
    "Same system's": _MATCHED,
    "Own": "With the context of the window's own history, or of a donor of its own system.",
    "own-donor": _MATCHED,
    "Correct": "Error with the context of another episode of the same system.",
    "Correct ↓": "Error with the context of another episode of the same system, at h16.",
    "Gap ↑": "Error with another system's context minus error with the same system's, at h16: above 0 if it matters.",
    "Gap": "Error with another system's context minus error with the same system's: above 0 if contexts matter.",
    "Self": "With the context of the window's own history.",
    "Target variance": "Variance of what is predicted: the error of always predicting the mean.",
    "variance": "Variance of what is predicted: the error of always predicting the mean.",
    "Wrong": _WRONG,
    "Fixed Wrong": "The fitted reader is given another system's context: if this costs nothing, contexts are not used.",
    "Fixed Zero": "The fitted reader is given the mean training context, which tells nothing of the system.",
    "Wrong − matched": "What another system's context costs: above 0 if contexts are used.",
    "Δ, wrong − matched": "What a wrong donor adds to the error: above 0 if contexts are used.",
    "Δ_spec": "Error with another system's context minus error with the own one: above 0 if contexts are used.",
    "Sensitivity": "How far predictions move when the context is exchanged.",
    "2 · cross": "How that move meets the error; with the sensitivity it adds up to the whole change.",
    "hard": "With the most similar wrong donors: the nearest commands, or the same calibration.",
    "calibrated": "With a donor of another task under the same calibration of the robot.",
    "commanded": "With the donor of another task whose commands are nearest.",
    "Penalty": "What another system's context adds to the error: above 0 if contexts are used.",
    "Null": "A reader that sees the present alone, no context.",
    "Fresh Null": "A reader fitted anew that sees the present alone, no context.",
    "Null reader": "A reader that sees the present alone, no context.",
    "Persistent": "A reader that also sees the donor's context.",
    "Persistent reader": "A reader that also sees the donor's context.",
    "reader 0": "The reader of seed 0 alone.",
    "all readers": "The mean of all readers.",
    "Decode": "A reader that sees the properties as read off the context, in place of the context.",
    "Oracle": "A reader that sees the true properties: about the best that a context can do.",
    "Oracle reader": "A reader that sees the true properties: about the best that a context can do.",
    "R0": "A reader of the present alone, which the others add to.",
    "M1": "R0 with a second network of the present alone: the same size as M2, without a context.",
    "M2": "R0 with a second network of the present and the donor's context.",
    "M2 matched": "R0 with a second network of the present and the own system's context.",
    "M2 mismatched": "The same network, given another system's context.",
    "wrong donor": _WRONG,
    "Recipient-only": "A reader of the present alone.",
    "Gain": "How much the context lowers the error: above 0 if it is worth something.",
    "Weighted gain": "The same, with errors weighted by the physical size of each coordinate.",
    "Reduction": "How much lower the error is, in percent.",
    "Reduction in percent": "How much lower the error is, in percent.",
    "MSE gap": "The comparator's error minus the method's: above 0 favours the method.",
    "MSE contrast": "The difference of mean squared errors between the two arms.",
    "Favour M2": "In how many fits M2 has the lower error.",
    "Sources × readers": "How many trainings, and readers fitted on each.",
    "First weights": "Contexts of the untrained network.",
    "Untrained": "Contexts of the untrained network.",
    "Repeat": "One donor history, given several times over.",
    # where and when
    "validation": "On validation systems: not trained on, but used to choose settings.",
    "Validation systems": "On validation systems: not trained on, but used to choose settings.",
    "test": "On test systems: neither trained on nor used to choose anything.",
    "Test systems": "On test systems: neither trained on nor used to choose anything.",
    "confirmation": "On confirmation systems: neither trained on nor used to choose anything.",
    "Familiar": "With partners that histories were trained on.",
    "held_out": "With partners that were never trained with.",
    "held out": "With partners that were never trained with.",
    "ID": "On systems within the range of training.",
    "Viscous OOD": "On systems of a viscosity outside the range of training.",
    "Inviscid OOD": "On a system without viscosity, which is outside the range of training.",
    "Train": "On systems of the training.",
    "Cold start": "On queries whose recipient has shown nothing yet: from rest, in one frame.",
    "Cold": "On queries whose recipient has shown nothing yet: from rest, in one frame.",
    "Moving": "On queries whose recipient is already moving.",
    "Query mixture": "On queries of all kinds.",
    "Primary": "On the population that was named before anything was measured.",
    "Secondary": "On the further population.",
    "Pooled": "On both populations.",
    "Balls": "The scene of balls.",
    "Collision": "The scene of two colliding objects.",
    "Blocktower": "The scene of towers of blocks.",
    "Early": "Of the first third of the training.",
    "Middle": "Of the second third of the training.",
    "Late": "Of the last third of the training.",
    "Familiar partners": "Mean return with partners that histories were trained on: higher is better.",
    "Held-out partners": "Mean return with partners that were never trained with: higher is better.",
    "Held-out dev. partners": "Mean return with partners that were never trained with: higher is better.",
    "Familiar MSE": "Error of predicting how often the partner takes each action, for partners trained on.",
    "Held-out MSE": "The same error for partners never trained with.",
    "Held-out dev. MSE": "The same error for partners never trained with.",
    "Familiar probe MSE": "Error of predicting how often the partner takes each action, for partners trained on.",
    "Familiar return": "Mean return with partners that histories were trained on.",
    "Held-out dev. return": "Mean return with partners that were never trained with.",
    # budgets and costs
    "Updates": "Optimiser updates of the training.",
    "Selected update": "The update whose weights were kept, by validation error.",
    "Further updates": "Updates of the stage of prediction alone.",
    "Reader updates": "Optimiser updates of the reader.",
    "Source updates": "Optimiser updates of the training.",
    "Source / reader epochs": "Passes through the data of the training, and of the reader.",
    "Budget": "Histories of a system: R2 are two, R8 eight.",
    "Parameters": "Trained numbers.",
    "Fitting": "Seconds of the training.",
    "Adaptation a query": "Seconds to fit a code to one query.",
    "Forecast a query": "Seconds to predict one query.",
    "Code steps": "Gradient steps that the code is fitted by for each query.",
    "Code-0": "With the encoder's code as it is.",
    "Code-50": "With the code after 50 gradient steps on the given history.",
    "Code-0 viscosity R²": "How much of the viscosity is read off the encoder's code.",
    "Code-50 viscosity R²": "How much of the viscosity is read off the code after 50 steps.",
    "Largest change of the decoder": "Largest difference of the decoder's weights from before: 0 if it stayed frozen.",
    "Max. decoder change": "Largest difference of the decoder's weights from before: 0 if it stayed frozen.",
    "Sampled histories": "A digest of the histories drawn: equal digests are equal draws.",
    "Recipients": "How many recipients the number is of.",
    "Train (s)": "Seconds of training.",
    "Collect (s)": "Seconds of collecting episodes.",
    "Return": "The sum of rewards of an episode, its mean: higher is better.",
    "Success": "Share of the episodes that succeed.",
    "points": "In percentage points.",
    "no learner": "Read from simple averages of the recordings, no learner.",
    "true behaviour": "Read from what the partner truly did in the same episodes, which the learner does not see.",
    "left out": "Of partners that the probe was not fitted with, each in its turn.",
    "two names": "Of one partner under two names: what cannot tell these apart has at least 1.",
    "one partner": "Of one partner, not of different ones.",
    "resolves": "The smallest difference that so many sources could tell from 0.",
    "power": "The chance that so many sources resolve the paper's difference at the spread found here.",
    "paper": "The paper's number.",
    "Collected return": "Mean return of the episodes collected in this round.",
    # intervals and statistics
    "By source": "One number a training.",
    "Mean": "The mean over sources, or over observations.",
    "Largest": "The largest over horizons.",
    "Median": "Half of the observations lie below.",
    "Q1": "A quarter of the observations lie below.",
    "Q3": "Three quarters of the observations lie below.",
    "Valid n": "How many observations there are.",
    "Negative": "Share of the observations below 0.",
    "Zero norm": "Share of the observations at which a gradient vanishes.",
    "‖∇Align‖": "Median size of the gradient of Align.",
    "‖∇Cross‖": "Median size of the gradient of Cross.",
    "‖∇Lalign‖": "Median size of the gradient of Align.",
    "‖∇Lcross‖": "Median size of the gradient of Cross.",
    "n₊": "In how many sources the difference is above 0.",
    "Sign": "Whether the slope is above or below 0.",
    "Slope": "How much the number rises with the other, by linear regression.",
    "interval": _INTERVAL,
    "paired interval": _INTERVAL,
    "task interval": _INTERVAL,
    "system-bootstrap interval": _INTERVAL,
    "Standard error": "Standard deviation of the mean over systems.",
    "Positive systems": "Share of the systems with a gain above 0.",
    "Over recipients": "The difference, its interval over recipients: conditional on these sources.",
    "Over sources and recipients": "The difference, its interval over sources and recipients.",
    "Recipients better": "Share of the recipients for whom the second arm has the lower error.",
    "Second arm better for": "Share of the recipients for whom the second arm has the lower error.",
    "over systems": "The interval resamples systems: conditional on these sources.",
    "over paired sources": "The interval is over sources, both numbers of each being compared.",
    "over sources": "The interval is over sources.",
    "readers and systems": "The interval resamples readers and systems as well.",
    "t": "By Student's t.",
    "adjusted": "The interval allows for how many comparisons there are (Bonferroni).",
    "Recovery": "How much of the gap between random and true relations the inferred one closes, in percent.",
    "Δ": "The difference between the two arms.",
    "Comparator − SPRII": "The comparator's error minus SPRII's: above 0 favours SPRII.",
    # landscapes and directions
    "Valley depth": "How much lower the error is with a donor of the recipient's own level than with others: "
    "above 0 if "
    "the context steers the prediction.",
    "Depth": "How much lower the error is with a donor of the recipient's own level than with others: above 0 if the "
    "context steers the prediction.",
    "ρ of the grid": "Rank correlation of the error with how far the donor's level is from the recipient's.",
    "ρ": "Rank correlation of the error with how far the donor's level is from the recipient's.",
    "Reader: relative share": "Share of the reader's response in the distance of the two balls, not their centre.",
    "Simulator": "The same share in the simulator itself.",
    "Reader: relative − centre": "How much more the reader's response is in the distance of the balls than in "
    "the centre.",
    "Native embedding": "Measured in the learner's own embedding.",
    "State decoder": "Measured in the state that a frozen decoder reads off the embedding.",
    "Position": "Of positions.",
    "Velocity": "Of velocities.",
    "Physical risk": "Error of the object's state.",
}
"""Heading, or part of one → what it means; looked up without regard to case."""

PATTERNS: tuple[tuple[str, str], ...] = (
    (r"r = \d+ minus r = 0", "What having seen so many more steps of the recipient changes."),
    (r"(Source|Seed) \d+", "The number of the training with this seed."),
    (r"Adapter \d+", "The number of this one of the adapters that are fitted on the frozen network."),
    (r"(Direct |Free rollout )?h ?=? ?\d+", "The error so many steps ahead."),
    (r"(Native )?h=\d+", "The error so many steps ahead."),
    (r"(single steps|two of sixteen)", "How the rollout is made of predictions: step by step, or by jumps."),
    (r"H10 MSE", "Squared error ten steps ahead along logged actions."),
    (r"Self h\d+", "The error so many steps ahead with the context of the window's own history."),
    (r"(Own|Same system's) h\d+", "The error so many steps ahead with the context of a history of the same system."),
    (r"Another system's h\d+", "The error so many steps ahead with the context of another system."),
    (r"variance h\d+", "Variance of what is predicted so many steps ahead: the error of always predicting the mean."),
    (r"r = \d+", "The error once so many steps of the recipient have been seen."),
    (r"s ?= ?[\d.]+|0\.\d+", "The error with the context scaled by s: 0 is no context, 1 the context as it is."),
    (r"K = \d+( to \d+)?", "With codes of so many histories averaged; from one number to another, what that changes."),
    (r"S\d+( of S\d+'s)?", "With so many donor histories; of S5's or S8's: on the recipients that have that many."),
    (r"R(2|²) (log )?(γ|of .+)|R²log ?γ", "Share of the property's variance that a linear probe reads off "
    "contexts: 0 is "
     "a constant, 1 all of it."),
    (r"R² ?[^\s,][^,]*|[^\s,]+ R²|(ID|Viscous.OOD) R²|G[₁₂12] R²", "Share of a property's variance that is read "
    "off contexts: 0 is "
     "a constant, 1 all of it."),
    (r"(partial )?ρ ?[^\s,][^,]*", "Rank correlation of distances between contexts with distances in this "
    "property, the other "
     "properties held fixed: 0 if contexts do not follow it, 1 if they follow it in all."),
    (r"(m|γ|k|k/m|β|log ?\(?(m|γ|k|k/m)\)?|(log )?(mass|drag|stiffness|friction|restitution|viscosity|gravity)"
     r"(_over_mass|/mass|_[xy])?|stiff\.)", _PROPERTY),
    (r"1/\(?[ml·²()]+", _PROPERTY),
    (r"P\(.+\)", "Whether predictions move the way the simulator does when the donor differs in this property: "
    "0 is not "
     "at all, 1 as far and in the same direction."),
    (r"(Cold start|Moving|Primary|Secondary|Pooled)[:,] .*\d+.*systems?.*", "On these systems and queries."),
    (r"(Cold start|Moving|Primary|Secondary|Pooled): \d+", "On so many systems of the population."),
    (r"\d+ systems", "On so many systems."),
    (r"Force h\d+", "Squared error of the force so many steps ahead, in standard deviations."),
    (r"(FT|force) h\d+( MSE)?", "Squared error of the force so many steps ahead, in standard deviations."),
    (r"TCP h\d+", "Error of the place of the robot's tool so many steps ahead."),
    (r"% below .+", "By how many percent SPRII's error is below this arm's."),
    (r"vs\. .+", "By how many percent SPRII's error is below this arm's."),
    (r"S(_| of ).+", "What a wrong donor adds to this model's error: above 0 if it uses the donor."),
    (r"D|D_spec", "The difference of the two: above 0 if Align + Cross depends more on whose history it is given."),
    (r"R²_[SM], source \d+", "Share of the properties' variance read off codes (S) or memory (M), of one training."),
    (r"H = \d+ relative-L2 penalty", "What another system's context adds to the relative error so many steps ahead."),
    (r"Δ (mass|friction|restitution)", "What a history adds to the error whose object differs in this property alone."),
    (r"[\d,]+k? (reader )?updates|\d+k", "After so many updates of the reader."),
    (r"\d+k gain", "Gain of the context after so many updates of the reader, in 10⁻³."),
    (r"Mean error of .+", "The mean of the errors on these horizons and systems, by which recipes are chosen."),
    (r"two names ÷ constant", "Error of telling one partner's two names apart over that of always saying the mean: at "
    "least 1 where it cannot."),
    (r"over sources", "The interval is over sources."),
    (r"Source \d+ \(d = \d+\)", "The training with this seed, and the size of its codes."),
    (r"(Mean|Largest) \(≤ [\d.]+\)", "Over the horizons; in parentheses the bound that it must keep to."),
    (r"(≤|>|<) ?[\d.]+", "The bound."),
    (r"(ID|Train) B/W", "Between over within: how far codes of different systems lie apart, over how far those "
    "of one do."),
    (r"MSE of γ|γ MSE", "Mean squared error of the property as read off the context."),
    (r"MSE interval", _INTERVAL),
    (r"Fixed Wrong CI", "The interval of the error when the fitted reader is given another system's context."),
    (r"D-P( CI)?", "Decode minus Persistent, or its interval: below 0 the properties serve better than the context."),
    (r"(SPRII|NOD) reduction", "How many percent lower the error of this arm is with four histories than with one."),
    (r"(SPRII|NOD) K = \d+", "The error of this arm with codes of so many histories averaged."),
    (r"Own-donor H10 MSE", "Squared error ten steps ahead along logged actions, with the context of another episode of "
     "the system."),
    (r"Squared error", "Mean squared error of the probe: lower is better."),
    (r"adjusted interval", "The 95 % interval, which allows for how many comparisons there are (Bonferroni)."),
    (r"interval over .+", "The difference, its interval over what is named: it is conditional on all else."),
    (r"h\d+ object-state error", "Error of the object's state so many steps ahead."),
    (r"\d+k interval", "The interval of the gain after so many updates of the reader."),
    (r"OOD_\w+|OOD-\w+", "On systems outside the range of training."),
    (r"\d+", "Of the training with this seed."),
    (r"k: split|β: split", "Which systems the number is of; k and β are the properties."),
)  # fmt: skip

SUFFIXES: tuple[tuple[str, str, str], ...] = (
    (r"\s*\[(95 ?% )?(paired |task |system-bootstrap )?(t )?(interval|CI)\]", "[…]", _INTERVAL),
    (r"\s*\[adjusted( 95 ?% interval)?\]", "[adjusted]", "The interval allows for how many comparisons there are "
     "(Bonferroni)."),
    (r"\s*\(R²\)", "R²", "Share of the variance that is read: 0 is a constant, 1 all of it."),
    (r",? % lower", "% lower", "How many percent lower the error is."),
    (r"\s*\(%\)", "%", "In percent."),
    (r",? cm| \(cm\)", "cm", "In centimetres."),
    (r"\s*\((\w+ )?× 10⁻[³⁴]\)|,?\s*× 10⁻[³⁴]|,? in 10⁻[³⁴]|, 10⁻³|, 1e-5|\s*\(10⁻⁴\)", "10⁻ⁿ", "The numbers are to be "
     "multiplied by this power of ten."),
    (r"\s*↑", "↑", "Higher is better."),
    (r"\s*↓", "↓", "Lower is better."),
)  # fmt: skip
"""What may follow a heading: its pattern, how it is named, and what it means."""

OWN: dict[str, dict[str, str]] = {
    "tab:v3-swimmer": {
        "Gain": "Error with another system's update minus error with the own one, at fixed weights: above 0 if the own "
        "update is worth something.",
        "Gain, targets without noise": "The same gain against targets without the noise of measurement.",
        "Own update": "Error with the update of the context by the system's own segment.",
        "Another's": "Error with another system's update.",
        "No update": "Error without an update.",
        "No segment": "Error of the base alone, given no segment.",
        "Anchor": "Error of the base alone, given the first segment.",
        "Anchor and candidate": "Error of the base alone, given both segments.",
    },
    "fig:v3-poke-semantics": {"Cross": "How the move meets the error; with the sensitivity it adds up to Δ."},
    "tab:coda-host-results": {"Objective": "The terms of the loss."},
    "tab:coda-host-cost": {"Objective": "The terms of the loss."},
    "tab:v3-rh-risk": {
        "Donor": "Whose recording is given: the same task's (matched), another task's.",
        "random": "With a recording of another task, drawn at random.",
    },
    "tab:v3-horizon": {"Gain": "How many percent the context lowers the error of the reader without one."},
    "tab:spring-gradient-distribution": {
        "Mean": "The mean cosine of the two gradients: below 0 they oppose each other."
    },
    "tab:overcooked-complete": dict.fromkeys(
        ("History", "100%", "50%", "25%"), "The share of the partners' histories that is trained on."
    ),
    "tab:pendulum-r7": {
        "Mass R²": "Share of the mass's variance that a linear probe reads off contexts.",
        "Length R²": "Share of the length's variance that a linear probe reads off contexts.",
        "Updates": "Optimiser updates of the round.",
    },
    "ext:pendulum-context": {
        "What changes": "The one thing in which the two lines differ.",
        "Before": "The line without it.",
        "After": "The line with it.",
        "Loss before": "Percent of the oracle's return that the line without it loses.",
        "Loss after": "Percent of the oracle's return that the line with it loses.",
    },
}
"""Label of a table or figure → words that mean something of its own there."""

_SEPARATORS = (", ", ": ", " − ", "–", " minus ")
_LABEL = re.compile(r"((?:tab|fig|app|setting|ext):[\w.-]+): ")


class Tabular(Protocol):
    """Whatever has columns and rows."""

    @property
    def columns(self) -> Sequence[str]:
        """Headings."""
        ...

    @property
    def rows(self) -> Sequence[Sequence[str]]:
        """Cells."""
        ...


def meanings_of(columns: Sequence[str], label: str = "") -> list[tuple[str, str]]:
    """The words of headings and what each means, headings of one meaning together; what has none is left out.

    Args:
        label: of the table or figure of the paper, for words of its own.
    """
    signs = {named for _, named, _ in SUFFIXES}
    pairs = [pair for column in columns for pair in words_of(column, label) or ()]
    return _together(sorted(pairs, key=lambda pair: pair[0] in signs))


def without_meaning(columns: Sequence[str], label: str = "") -> list[str]:
    """Headings that no entry here explains."""
    return [column for column in columns if words_of(column, label) is None]


def words_of(column: str, label: str = "") -> list[tuple[str, str]] | None:
    """(word, meaning) of each part of a heading; None where a part has no meaning."""
    text = column.replace("^2", "²").replace("^-4", "⁻⁴").strip()
    if found := _word(text, label):
        return [(text or "first column", found)]
    after = []
    for pattern, named, meaning in SUFFIXES:
        shorter = re.sub(f"{pattern}$", "", text)
        if shorter != text and shorter.strip():
            after = [(named, meaning)]
            before = words_of(shorter, label)
            return None if before is None else before + after
    if "95%" in text or "95 %" in text:
        return words_of(" ".join(re.sub("95 ?%", "", text).split()), label)
    for separator in _SEPARATORS:
        if separator not in text:
            continue
        for at in (found.start() for found in re.finditer(re.escape(separator), text)):
            parts = [words_of(part, label) for part in (text[:at], text[at + len(separator) :])]
            if all(part is not None for part in parts):
                return [pair for part in parts for pair in part or ()]
    return None


def arm_of(label: str) -> list[tuple[str, str]] | None:
    """(part, meaning) of the parts of an arm's label; None where one has no meaning."""
    if found := _arm(label):
        return [(label, found)]
    for separator in (", ", ": ", "–"):
        if separator in label:
            first, _, rest = label.partition(separator)
            parts = [arm_of(first), arm_of(rest)]
            if all(part is not None for part in parts):
                return [pair for part in parts for pair in part or ()]
    return None


def arms_in(tables: Iterable[Tabular]) -> list[tuple[str, str]]:
    """The arms that tables name, in headings or as the first words of lines, and what each is."""
    return _together(pair for text in _texts(tables) for pair in arm_of(text) or ())


def references_in(tables: Iterable[Tabular]) -> list[tuple[str, str]]:
    """The lines of tables that stand beside arms, and what each says."""
    return _together((text, found) for text in _texts(tables) if (found := _folded(REFERENCES).get(text.casefold())))


def label_of(title: str, label: str) -> str:
    """The label that a table of a page made of several says in its title; otherwise the page's."""
    found = _LABEL.match(title)
    return found[1] if found else label


def _word(text: str, label: str) -> str | None:
    key = text.casefold()
    if found := _folded(OWN.get(label, {})).get(key) or _folded(COLUMNS).get(key):
        return found
    for pattern, meaning in PATTERNS:
        if re.fullmatch(pattern, text, re.IGNORECASE):
            return meaning
    if arm_of(text) is not None:
        return "The number of this arm; see What is compared."
    return _folded(REFERENCES).get(key)


def _arm(text: str) -> str | None:
    if found := ARMS.get(text) or ARMS.get(text.replace(", ", " ")):
        return found
    return next((meaning for pattern, meaning in ARM_PATTERNS if re.fullmatch(pattern, text)), None)


def _texts(tables: Iterable[Tabular]) -> Iterable[str]:
    """Headings, the words of lines, and their parts."""
    for table in tables:
        for text in (*table.columns, *(cell for row in table.rows for cell in row[:2])):
            whole = text.strip()
            yield whole
            for part in re.split(r" − |: |, ", whole):
                if part != whole:
                    yield part


def _together(pairs: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Words of one meaning together, in their order."""
    found: dict[str, list[str]] = {}
    for word, meaning in pairs:
        named = found.setdefault(meaning, [])
        if word not in named:
            named.append(word)
    return [(", ".join(words), meaning) for meaning, words in found.items()]


def _folded(entries: Mapping[str, str]) -> dict[str, str]:
    return {key.casefold(): meaning for key, meaning in entries.items()}

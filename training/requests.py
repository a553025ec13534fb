"""Requests as people make them, composed of forms and subjects. What the target itself says as a
user is vaguer, and so are its answers then, of which it repeats more.

None is one of bench/prompts.jsonl.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping

_SLOT = re.compile(r"\{(\w+)\}")

FORMS = {
    "writing": (
        "Write {piece} about {subject}.",
        "Write {piece} about {subject} for {readers}. Keep it {manner}.",
        "Write {piece} in which {person} and {person} talk about {subject}.",
        "Write {length} about {subject}, {manner} and without clichés.",
        "Compose {piece} on the theme of {subject}. Begin with a question.",
        "I have to give a speech about {subject} to {readers}. Write it for me, {length}.",
        "Write an e-mail to {person}. I want to {errand}. Be {manner}.",
        "Draft a letter in which {person} asks {person} to {errand}.",
        "Describe {place} {moment}. {length}.",
        "Write the first page of a novel that begins in {place} {moment}.",
        "Write a short text for the website of {place}. It should be {manner}.",
        "Suggest ten titles for {piece} about {subject}.",
        "Translate into {language}: My neighbour wants to {errand}, but {place} is closed.",
    ),
    "roleplay": (
        "You are {person} in {place}. I am {person}. Greet me and ask what I want.",
        "Act as {person} and explain {topic} to me in your own words. Stay in character.",
        "Pretend to be {person}. I want to {errand}; you are against it. Begin.",
        "Let's play a scene: you are {person}, I am {person}, and we meet in {place} {moment}.",
        "Speak as {person} would and tell me what you think about {subject}.",
        "Be my teacher of {topic}. Ask me one question at a time, and begin with an easy one.",
    ),
    "reasoning": (
        "{name}, {name} and {name} own {small} {things} together. {name} has more than "
        "{name}. Who can have the most? Explain step by step.",
        "All {things} in {place} are {colour}. {name} holds one that is not {colour}. What "
        "follows?",
        "Should I {errand} or rather wait until next year? List reasons for both and decide.",
        "Every time {name} goes to {place}, it rains. Does going there cause rain? Explain.",
        "What would happen if there were no more {things}? Think about it step by step.",
        "Find the odd one out and say why: {things}, {things}, {topic}, {things}.",
        'Is this a good argument? "{person} likes {subject}, so everybody should {errand}."',
        "Plan a day for {person} who wants to {errand} and still visit {place} {moment}.",
    ),
    "math": (
        "{name} buys {small} {things} for {number} dollars each and pays with {large} "
        "dollars. How much change does {name} get?",
        "A train covers {large} km in {small} hours. What is its average speed? How long does "
        "it take for {number} km?",
        "What is {number} percent of {large}? Show every step.",
        "Solve for x: {small}x + {number} = {large}.",
        "Solve x^2 - {number}x + {small} = 0 and explain the formula that you use.",
        "A rectangle is {number} cm long and {small} cm wide. Find its area, perimeter and "
        "diagonal.",
        "{name} saves {number} dollars a week. After how many weeks are there {large} dollars?",
        "In a bag are {small} {colour} and {number} {colour} {things}. I take one without "
        "looking. What is the probability of each colour?",
        "Find the derivative of f(x) = {small}x^3 - {number}x + {large}.",
        "Compute {large} divided by {small}, with remainder, and check the result.",
        "How many ways are there to arrange {small} different {things} on a shelf?",
        "The mean of {small}, {number} and x is {number}. Find x.",
        "Explain {mathematics} with an example.",
    ),
    "coding": (
        "Write a {code} function that {task}. Explain how it works.",
        "Write a {code} program that {task}, with comments.",
        "Write a {code} function `solve` that {task}, and three tests for it.",
        "How do I write a loop in {code} that {task}?",
        "What is the fastest algorithm for a function that {task}? Give its complexity.",
        "Write a class for {things} in {code}, with a method that {task}.",
        "Write an SQL query for a table of {things} with the columns name, colour, price and "
        "place: the {small} dearest ones of each place.",
        "Explain {computing} to a programmer who knows only {code}.",
        "Write a regular expression for {pattern} and explain each part.",
        "Write an HTML page with a table of {things} and a form to add one.",
        "My {code} program that {task} is too slow. What should I look at first?",
    ),
    "extraction": (
        'Extract name, place, amount and date from this as JSON: "On {date} {name} bought '
        '{number} {things} in {place} and paid {large} dollars."',
        "List all people and what they did: {name} sold {small} {things} to {name}. {name} "
        "wants to {errand}. On {date}, {name} left for {place}.",
        "Turn this into a table with the columns item, count and price: {small} {things} at "
        "{number} dollars, {number} {things} at {small} dollars, {small} {things} at {large} "
        "dollars.",
        'Which dates and places are in this text? "{name} came to {place} on {date}, saw '
        '{person} {moment}, and left on {date}."',
        'Is this review positive or negative, and about what? "{name} recommended these '
        '{things}. After {small} days mine were broken, and {person} refused to help."',
        "Return only the prices, one a line: {things} {number}.50, {things} {small}.20, "
        "{things} {large}.",
    ),
    "science": (
        "What is {topic}?",
        "Explain {topic} to {readers}.",
        "How does {topic} work? Describe it step by step.",
        "What is the difference between {topic} and {topic}?",
        "Why is {topic} important? Give three reasons with examples.",
        "Describe the history of {topic} in {length}.",
        "What are common mistakes that people make about {topic}?",
        "How would you test experimentally what is said about {topic}?",
        "List the main parts of {topic} and define each in one sentence.",
        "Give an everyday comparison for {topic}, and say where it fails.",
    ),
    "humanities": (
        "What were the causes of {event}?",
        "How did {event} change the life of ordinary people? Discuss it with examples.",
        "Compare {event} with {event}.",
        "Write an essay of {length} about {event}, for {readers}.",
        "Summarise {idea} in one paragraph and name its strongest critic.",
        "What is the difference between {idea} and {idea}? Apply both to an example.",
        "Give arguments for and against {idea}.",
        "Who was important for {idea}, and why?",
        "What can we learn from {event} today?",
    ),
    "advice": (
        "How can I {errand}?",
        "I am {person} and want to {errand}. What should I think of first?",
        "Give me step-by-step instructions to {errand}.",
        "Plan a weekend in {place} for {readers}.",
        "What are the advantages and disadvantages of {subject}?",
        "Give me {small} tips about {subject} for {readers}.",
    ),
}
"""By kind, with slots."""

FOLLOW_UPS = (
    "Make that shorter.",
    "Say it again for {readers}.",
    "Give an example.",
    "Explain the second point in more detail.",
    "Now write it in a {manner} tone.",
    "Rewrite it so that every sentence has at most twelve words.",
    "What is the strongest objection to that?",
    "Turn it into a table.",
    "Turn it into a list of bullet points.",
    "Are you sure? Check it once more.",
    "What would change if {person} were asked instead?",
    "And what about {topic}?",
    "Translate the first sentence into {language}.",
    "Ask me three questions about it.",
)

NUMBERS: Mapping[str, tuple[int, int]] = {"small": (2, 12), "number": (5, 60), "large": (100, 900)}
"""Slots for numbers, from and to."""


def _words(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(";"))


WORDS = {
    "piece": _words(
        "a story; a poem; a short essay; a dialogue; a blog post; a letter to the editor; a"
        " fairy tale; a song; a news report; a diary entry; a limerick; a monologue; a review; a"
        " speech; four haiku"
    ),
    "length": _words(
        "one paragraph; two paragraphs; three sentences; about 200 words; five sentences; about"
        " 100 words; half a page"
    ),
    "manner": _words(
        "friendly; formal; funny; short; polite; honest; warm; sober; simple; precise; vivid; calm"
    ),
    "readers": _words(
        "children of eight; my grandmother; students in their first year; busy managers;"
        " tourists; a class of teenagers; new colleagues; farmers; nurses; people who learn"
        " English; beginners"
    ),
    "subject": _words(
        "an old bridge; a lost key; friendship; the first snow; moving to another town; a"
        " broken promise; working at night; learning to swim; growing tomatoes; public"
        " libraries; electric cars; school uniforms; living alone; a forgotten birthday;"
        " travelling by train; honesty; keeping a dog; remote work; zoos; a storm at sea; early"
        " retirement; homework; a secret recipe; cycling to work; second-hand clothes;"
        " artificial intelligence; silence; a family dinner; city traffic; forgiving somebody;"
        " the last day of summer; fast food; a dream that came true; patience; social media"
    ),
    "person": _words(
        "a baker; an old fisherman; a detective; my neighbour; a young doctor; the mayor; a"
        " taxi driver; a queen; a robot; a librarian; my brother; a ghost; a tired teacher; an"
        " astronaut; a gardener; a pirate; my landlord; a job applicant; a football coach; a shy"
        " student; a judge; a travelling musician; the hotel manager; a wizard; a nurse; my"
        " boss; a customer; a historian; a carpenter"
    ),
    "place": _words(
        "a small harbour; Lisbon; the mountains; a railway station; an empty theatre; Kyoto; a"
        " village school; a spaceship; the desert; a bakery; Chicago; an island; the town hall;"
        " a hospital; a farm; Cairo; a bookshop; the forest; a castle; a museum; Vienna; a"
        " street market; a ski resort"
    ),
    "moment": _words(
        "at dawn; after the rain; in winter; on a Monday morning; during a power cut; at"
        " midnight; in spring; just before closing time; on a very hot day; a hundred years ago;"
        " in the year 2150"
    ),
    "errand": _words(
        "borrow a ladder; apologise for being late; learn the piano; lose weight; sell an old"
        " car; ask for a pay rise; move to the country; repair a bicycle; sleep better; cancel a"
        " subscription; save money; start a small business; run a marathon; paint the kitchen;"
        " stop smoking; get a refund; organise a party; write a book; adopt a cat; learn"
        " Spanish; plant a hedge; change jobs; make new friends; invite the whole street; bake"
        " bread; prepare for an interview; use less water"
    ),
    "language": _words("French; Spanish; German; Italian; Portuguese; Dutch; Latin; Swedish"),
    "name": _words(
        "Anna; Omar; Mei; Lucas; Priya; Jonas; Sofia; Kofi; Elena; David; Aiko; Carlos; Fatima;"
        " Peter; Grace; Ivan; Laura; Samuel; Nadia; Tom; Ruth; Diego; Hannah; Malik; Julia;"
        " Victor"
    ),
    "things": _words(
        "apples; chairs; books; lamps; tickets; bottles; marbles; bicycles; stamps; pencils;"
        " umbrellas; eggs; coins; shoes; boxes; candles; plates; trees; keys; cups; batteries;"
        " watches; maps; bees"
    ),
    "colour": _words("red; blue; green; white; black; yellow; grey; brown; orange; purple"),
    "date": _words(
        "3 May 2021; March 14, 2019; 1 December; 2022-07-09; last Friday; 12/08/2020; the 5th"
        " of June; 30 October 1998; Tuesday, 2 February; 2023-11-21"
    ),
    "pattern": _words(
        "an e-mail address; a date like 2021-05-03; a phone number; a hex colour; a price in"
        " dollars; a word that begins and ends with the same letter; an IPv4 address; a URL; a"
        " time like 14:05"
    ),
    "code": _words(
        "Python; Python; Python; JavaScript; Java; C; C++; Go; Rust; TypeScript; Ruby; Bash;"
        " PHP; Kotlin"
    ),
    "task": _words(
        "reverses a string; finds the largest number in a list; counts words in a file; checks"
        " whether a number is prime; sorts a list of names by length; removes duplicates; reads"
        " a CSV file and sums a column; finds the second largest value; checks whether a string"
        " is a palindrome; merges two sorted lists; computes the Fibonacci numbers; converts"
        " Celsius to Fahrenheit; flattens a nested list; rotates a matrix; generates a random"
        " password; finds all anagrams of a word; counts vowels; renames all files in a folder;"
        " computes a factorial without recursion; validates brackets; finds the shortest path in"
        " a graph; searches a binary tree; groups people by age; downloads a page and prints its"
        " title; splits a text into sentences; adds two fractions; computes the days between two"
        " dates; rolls two dice a thousand times; writes a dictionary to a JSON file; finds the"
        " longest common prefix; implements a stack; retries a request three times"
    ),
    "computing": _words(
        "recursion; hash tables; pointers; garbage collection; threads and locks; a binary"
        " search; REST interfaces; unit tests; version control; inheritance; big-O notation; a"
        " linked list; closures; exceptions; indexes of a database; virtual memory; a load"
        " balancer; caching; encryption; DNS"
    ),
    "mathematics": _words(
        "the theorem of Pythagoras; prime factors; conditional probability; the mean and the"
        " median; a proof by induction; logarithms; the dot product; compound interest; the"
        " binomial theorem; limits; standard deviation; modular arithmetic; the area of a"
        " circle; negative exponents; vectors; sets"
    ),
    "topic": _words(
        "photosynthesis; gravity; the water cycle; plate tectonics; the immune system;"
        " electricity; black holes; evolution; a vaccine; climate change; the periodic table;"
        " DNA; magnetism; sound; the solar system; a lever; friction; the heart; antibiotics;"
        " fermentation; ocean currents; lightning; a nuclear reactor; machine learning; a"
        " transistor; enzymes; volcanoes; digestion; radio waves; the greenhouse effect; a"
        " battery; osmosis; earthquakes; the brain; a telescope; cells; rainbows; the speed of"
        " light; viruses and bacteria; a steam engine; soil; the nitrogen cycle; genes; rust;"
        " quantum mechanics; acids and bases; the lungs; tides; blockchain; satellites;"
        " hormones; glaciers; hurricanes; solar panels; a jet engine; memory; the eye; atoms and"
        " molecules; food chains; sleep"
    ),
    "event": _words(
        "the Industrial Revolution; the fall of the Roman Empire; the First World War; the"
        " Renaissance; the American Civil War; the Cold War; the Great Depression; the discovery"
        " of America; the Black Death; the Russian Revolution; the fall of the Berlin Wall; the"
        " moon landing; the Reformation; the abolition of slavery; the invention of writing; the"
        " Second World War; the Silk Road; the independence of India; the building of the"
        " pyramids; the crusades; women's suffrage"
    ),
    "idea": _words(
        "democracy; free will; utilitarianism; the social contract; stoicism; capitalism;"
        " socialism; nationalism; the separation of powers; human rights; beauty in art;"
        " romanticism; existentialism; Buddhism; globalisation; freedom of speech; feminism; the"
        " golden rule; pragmatism; impressionism; universal basic income; compulsory voting;"
        " copyright; the scientific method; tolerance; justice"
    ),
}
"""What may stand in a slot."""


def request(chance: random.Random) -> list[str]:
    """One or two turns of a user."""
    form = chance.choice(FORMS[chance.choice(sorted(FORMS))])
    turns = [form] if chance.random() < 0.5 else [form, chance.choice(FOLLOW_UPS)]
    return [_filled(turn, chance) for turn in turns]


def _filled(form: str, chance: random.Random) -> str:
    """No word twice, so long as there are others."""
    used: set[str] = set()

    def fill(slot: re.Match[str]) -> str:
        if slot[1] in NUMBERS:
            return str(chance.randint(*NUMBERS[slot[1]]))
        unused = [word for word in WORDS[slot[1]] if word not in used] or WORDS[slot[1]]
        used.add(word := chance.choice(unused))
        return word

    filled = _SLOT.sub(fill, form)
    return filled[0].upper() + filled[1:]

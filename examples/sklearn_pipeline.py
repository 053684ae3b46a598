"""Use logt in scikit-learn: a neighbors graph in a pipeline, a classifier in a grid search."""

from sklearn.cluster import DBSCAN
from sklearn.datasets import load_digits
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.pipeline import make_pipeline

from logt.sklearn import LogtClassifier, LogtNeighbors, LogtTransformer

X, y = load_digits(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=0)

distances, rows = LogtNeighbors(n_neighbors=5).fit(X_train).kneighbors(X_test)
print("neighbors of the first test digit:", rows[0], distances[0].round(1))

clusters = make_pipeline(LogtTransformer(n_neighbors=15), DBSCAN(eps=20, metric="precomputed")).fit_predict(X)
print("clusters:", len(set(clusters) - {-1}))

search = GridSearchCV(LogtClassifier(), {"metric": ["euclidean", "cosine"]}, cv=3)
search.fit(X_train, y_train)
print(f"best parameters: {search.best_params_}, accuracy {search.score(X_test, y_test):.3f}")
